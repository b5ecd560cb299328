"""Decoded splits: their rows are in the memory of this process, or are kept by Spark."""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.sources.debezium.splits.outcome import (
    FREE,
    OUTCOME,
    SPLIT,
    SPLIT_ROWS,
    FreeRow,
    SplitOutcome,
)
from cdc_platform.sources.debezium.splits.split_reader import SplitReader
from cdc_platform.sources.debezium.transactions.transaction_buffer import Opening, TransactionBuffer


@dataclass(frozen=True)
class LocalSplits:
    """Splits that this process has decoded; ``table`` has their rows, as `SPLIT_ROWS`."""

    table: pa.Table

    @cached_property
    def outcomes(self) -> Sequence[SplitOutcome]:
        """Outcome of each split, in their order."""
        return _outcomes(self.table.filter(pc.is_valid(self.table[OUTCOME])))

    def rows(self, numbers: Sequence[int]) -> list[pa.RecordBatch]:
        """Return the rows of the splits of some numbers."""
        batches: list[pa.RecordBatch] = self._of(numbers).to_batches()
        return batches

    def free_rows(self, numbers: Sequence[int] | None = None) -> Iterator[FreeRow]:
        """Yield the places of the rows of these splits, or of all, that have no transaction."""
        rows = self.table if numbers is None else self._of(numbers)
        return _free_rows(rows[FREE].drop_null().to_pylist())

    def _of(self, numbers: Sequence[int]) -> pa.Table:
        return self.table.filter(pc.is_in(self.table[SPLIT], value_set=pa.array(numbers, pa.int64())))


@dataclass(frozen=True)
class OpenedSplit:
    """A split that is all there is of a cycle: its rows, its outcome, and what may pass."""

    rows: Sequence[pa.RecordBatch]
    outcome: SplitOutcome
    opening: Opening

    @classmethod
    def of(cls, reader: SplitReader, buffer: TransactionBuffer) -> "OpenedSplit":
        """Return what a reader has taken."""
        split = LocalSplits(pa.Table.from_batches(reader.rows(), SPLIT_ROWS))
        (outcome,) = split.outcomes
        opening = outcome.opened(buffer, has_metadata=reader.settings.tells_transactions)
        if opening.limit is not None:
            outcome, opening = outcome.without_waiting(opening, split.free_rows())
        return cls(split.table.to_batches(), outcome, opening)


@dataclass(frozen=True)
class SparkSplits:
    """Splits that tasks of Spark have decoded; ``frame``, which is persisted, has their `SPLIT_ROWS`."""

    frame: DataFrame

    @cached_property
    def outcomes(self) -> Sequence[SplitOutcome]:
        """Outcome of each split, in their order; asking for them lets the tasks begin."""
        return _outcomes(self.frame.where(F.col(OUTCOME).isNotNull()).select(SPLIT, OUTCOME).toArrow())

    def rows(self, numbers: Sequence[int]) -> DataFrame:
        """Return the rows of the splits of some numbers."""
        return self.frame.where(F.col(SPLIT).isin(list(numbers)))

    def free_rows(self, numbers: Sequence[int] | None = None) -> Iterator[FreeRow]:
        """Yield the places of the rows of these splits, or of all, that have no transaction."""
        rows = self.frame if numbers is None else self.rows(numbers)
        of_splits = rows.where(F.col(FREE).isNotNull()).select(FREE)
        return _free_rows(of_splits.toArrow()[FREE].to_pylist())


def _outcomes(rows: pa.Table) -> list[SplitOutcome]:
    return [SplitOutcome.from_bytes(data) for data in rows.sort_by(SPLIT)[OUTCOME].to_pylist()]


def _free_rows(texts: Iterable[bytes]) -> Iterator[FreeRow]:
    for data in texts:
        yield from pickle.loads(data)  # noqa: S301  written by our own task, never stored
