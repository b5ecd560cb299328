"""Decoded splits, with their rows in this process or in Spark's storage, and their reading by Spark."""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from cdc_platform.sources.debezium.splits.outcome import (
    FREE,
    OUTCOME,
    SPLIT,
    SPLIT_BLOCKS,
    FreeRow,
    SplitOutcome,
)
from cdc_platform.sources.debezium.splits.release import CycleRows
from cdc_platform.sources.loading import TaskRecords
from cdc_platform.sources.workers import Batches, in_worker

Rows_co = TypeVar("Rows_co", covariant=True)


class DecodedSplits(ABC, Generic[Rows_co]):
    """Decoded splits with their rows, as `SPLIT_BLOCKS`."""

    @cached_property
    def outcomes(self) -> Sequence[SplitOutcome]:
        """Outcome of each split, in order; the first call starts the tasks of Spark."""
        outcomes = self._values(OUTCOME, None).sort_by(SPLIT)[OUTCOME]
        return [SplitOutcome.from_bytes(data) for data in outcomes.to_pylist()]

    def free_rows(self, numbers: Sequence[int] | None = None) -> Iterator[FreeRow]:
        """Yield the places of rows without a transaction, of the splits with these numbers or of all."""
        for data in self._values(FREE, numbers)[FREE].to_pylist():
            yield from pickle.loads(data)  # noqa: S301  written by our own task, never stored

    @abstractmethod
    def blocks(self, numbers: Sequence[int] | None = None) -> Rows_co:
        """Return the blocks of the splits with these numbers, or of all splits."""

    @abstractmethod
    def _values(self, name: str, numbers: Sequence[int] | None) -> pa.Table:
        """Return the values of a column of these blocks with their splits, without nulls."""


@dataclass(frozen=True)
class LocalSplits(DecodedSplits[list[pa.RecordBatch]]):
    """Splits that this process has decoded."""

    table: pa.Table

    def blocks(self, numbers: Sequence[int] | None = None) -> list[pa.RecordBatch]:
        """Return the blocks of the splits with these numbers, or of all splits."""
        batches: list[pa.RecordBatch] = self._of(numbers).to_batches()
        return batches

    def _values(self, name: str, numbers: Sequence[int] | None) -> pa.Table:
        return self._of(numbers).select([SPLIT, name]).filter(pc.is_valid(pc.field(name)))

    def _of(self, numbers: Sequence[int] | None) -> pa.Table:
        if numbers is None:
            return self.table
        return self.table.filter(pc.is_in(self.table[SPLIT], value_set=pa.array(numbers, pa.int64())))


@dataclass(frozen=True)
class SparkSplits(DecodedSplits[DataFrame]):
    """Splits decoded by Spark's tasks; ``frame`` is persisted."""

    frame: DataFrame

    def blocks(self, numbers: Sequence[int] | None = None) -> DataFrame:
        """Return the blocks of the splits with these numbers, or of all splits."""
        return self.frame if numbers is None else self.frame.where(F.col(SPLIT).isin(list(numbers)))

    def _values(self, name: str, numbers: Sequence[int] | None) -> pa.Table:
        return self.blocks(numbers).where(F.col(name).isNotNull()).select(SPLIT, name).toArrow()


def decoded_by_tasks(messages: DataFrame, decoder: Batches, frames: ExitStack) -> SparkSplits:
    """Return the decoded splits of messages, which Spark keeps until the end of the stack."""
    frame = messages.mapInArrow(in_worker(decoder), from_arrow_schema(SPLIT_BLOCKS)).persist()
    frames.callback(frame.unpersist)
    return SparkSplits(frame)


def raw_records(rows: CycleRows[DataFrame]) -> TaskRecords:
    """Return the raw records of a cycle."""
    inputs = reduce(DataFrame.unionAll, rows.splits)
    return TaskRecords(inputs, rows.release, rows.reports, rows.left_since_micros)
