"""Decoded splits, with their rows in this process or in Spark's storage, and their reading by Spark."""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, reduce

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


@dataclass(frozen=True)
class LocalSplits:
    """Splits that this process has decoded; ``table`` has their `SPLIT_BLOCKS`."""

    table: pa.Table

    @cached_property
    def outcomes(self) -> Sequence[SplitOutcome]:
        """Outcome of each split, in order."""
        return _outcomes(self.table.filter(pc.is_valid(self.table[OUTCOME])))

    def blocks(self, numbers: Sequence[int] | None = None) -> list[pa.RecordBatch]:
        """Return the blocks of the splits with these numbers, or of all splits."""
        batches: list[pa.RecordBatch] = self._of(numbers).to_batches()
        return batches

    def free_rows(self, numbers: Sequence[int] | None = None) -> Iterator[FreeRow]:
        """Yield the places of rows without a transaction, of these splits or of all."""
        return _free_rows(self._of(numbers)[FREE].drop_null().to_pylist())

    def _of(self, numbers: Sequence[int] | None) -> pa.Table:
        if numbers is None:
            return self.table
        return self.table.filter(pc.is_in(self.table[SPLIT], value_set=pa.array(numbers, pa.int64())))


@dataclass(frozen=True)
class SparkSplits:
    """Splits decoded by Spark's tasks; ``frame``, which is persisted, has their `SPLIT_BLOCKS`."""

    frame: DataFrame

    @cached_property
    def outcomes(self) -> Sequence[SplitOutcome]:
        """Outcome of each split, in order; this call starts the tasks."""
        return _outcomes(self.frame.where(F.col(OUTCOME).isNotNull()).select(SPLIT, OUTCOME).toArrow())

    def blocks(self, numbers: Sequence[int] | None = None) -> DataFrame:
        """Return the blocks of the splits with these numbers, or of all splits."""
        if numbers is None:
            return self.frame
        return self.frame.where(F.col(SPLIT).isin(list(numbers)))

    def free_rows(self, numbers: Sequence[int] | None = None) -> Iterator[FreeRow]:
        """Yield the places of rows without a transaction, of these splits or of all."""
        of_splits = self.blocks(numbers).where(F.col(FREE).isNotNull()).select(FREE)
        return _free_rows(of_splits.toArrow()[FREE].to_pylist())


def _outcomes(rows: pa.Table) -> list[SplitOutcome]:
    return [SplitOutcome.from_bytes(data) for data in rows.sort_by(SPLIT)[OUTCOME].to_pylist()]


def _free_rows(texts: Iterable[bytes]) -> Iterator[FreeRow]:
    for data in texts:
        yield from pickle.loads(data)  # noqa: S301  written by our own task, never stored


def decoded_by_tasks(messages: DataFrame, decoder: Batches, frames: ExitStack) -> SparkSplits:
    """Return the decoded splits of messages, which Spark keeps until the end of the stack."""
    frame = messages.mapInArrow(in_worker(decoder), from_arrow_schema(SPLIT_BLOCKS)).persist()
    frames.callback(frame.unpersist)
    return SparkSplits(frame)


def raw_records(rows: CycleRows[DataFrame]) -> TaskRecords:
    """Return the raw records of a cycle."""
    inputs = reduce(DataFrame.unionAll, rows.splits)
    return TaskRecords(inputs, rows.release, rows.reports, rows.left_since_micros)
