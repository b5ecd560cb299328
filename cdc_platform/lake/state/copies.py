"""Initial copies: their plans, and their chunks on the branches `copy` of tables.

The branch is the record: each commit names its chunks and those of its predecessors, so one commit has a
chunk and the note that it is done. The branch stays, because the table consists of the copy and the log.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import Final

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.commits.commits import (
    POSITION,
    Version,
    ancestors_of,
    conflicts_as,
    count_rows,
    head,
    position_of,
    read_fact,
)
from cdc_platform.model.base.schemas import COPY_ROWS
from cdc_platform.model.base.stored_names import COPIES
from cdc_platform.model.base.stored_texts import parse_stored, read_stored, understanding
from cdc_platform.model.base.timestamps import from_datetime, to_datetime
from cdc_platform.model.schema.table_schema import TableSchema

COPY_BRANCH: Final = "copy"
COPY: Final = "cdc.copy"
"""Summary entry of the branch's commits."""
MAX_CHUNKS: Final = 1_000_000
"""A plan has far fewer: its chunks are texts of one row."""


@dataclass(frozen=True)
class CopyPlan:
    """Plan to copy a table as of a position; the stream takes over right after it."""

    table: str
    number: int
    position_micros: int
    planned_micros: int
    columns: str
    chunks: tuple[str, ...]

    @property
    def schema(self) -> TableSchema:
        """The table with its columns at the position.

        Raises:
            LakeDamaged: no planner wrote the columns.
        """
        place = f"plan {self.number} of `{self.table}`"
        return read_stored(partial(parse_stored, shape=TableSchema), self.columns, COPIES, place)

    def conflict(self) -> CommitConflict:
        """Return the error for a plan that another run has replaced."""
        return CommitConflict(
            f"Another run has planned the copy of `{self.table}` again; the next cycle follows that plan."
        )


def columns_to_text(table: TableSchema) -> str:
    """Return a table's columns as the text of a plan."""
    return json.dumps(asdict(table))


@dataclass(frozen=True)
class BatchTiming:
    """Timing of one commit of a copy: its number of chunks, its beginning, and its duration."""

    chunks: int
    begun_micros: int
    seconds: float


@dataclass(frozen=True)
class CopyProgress:
    """Progress of an initial copy: the part of its plan that the table's branch has.

    ``head`` is the newest valid commit of the plan, None before the first. ``is_mixed`` means that the
    branch has other commits on top of it, of a concurrent run or of an earlier plan.
    ``batches`` are the last commits of the plan, at most two, the newest first.
    """

    plan: CopyPlan
    done: frozenset[int]
    rows: int
    head: Snapshot | None
    is_mixed: bool
    batches: tuple[BatchTiming, ...] = ()

    @property
    def missing(self) -> tuple[int, ...]:
        """Chunks that are not copied yet, in order."""
        return tuple(chunk for chunk in range(len(self.plan.chunks)) if chunk not in self.done)

    @property
    def is_complete(self) -> bool:
        """Whether the branch holds every row of the copy."""
        return not self.missing

    @property
    def chunks_per_s(self) -> float | None:
        """Rate of the last commits; None before the first one."""
        seconds = sum(batch.seconds for batch in self.batches)
        return sum(batch.chunks for batch in self.batches) / seconds or None if seconds > 0 else None


@dataclass(frozen=True)
class ChunkBatch:
    """Facts of one commit of a copy: the plan, its base, all chunks up to it, its own chunks.

    ``schema_id`` is the table's schema at the base, None if the summary does not name it.
    """

    number: int
    base: int
    done: frozenset[int]
    own: int
    begun_micros: int
    schema_id: int | None = None

    def counts_as(self, snapshot: Snapshot) -> bool:
        """Return whether no other run has committed, or replaced the columns, between base and commit.

        The table has no value under the ids of columns that were replaced meanwhile.
        """
        has_columns = self.schema_id in (None, snapshot.schema_id)
        return self.base == snapshot.parent_snapshot_id and has_columns

    def to_text(self) -> str:
        """Return the chunk batch as the text of a summary."""
        fields = {"number": self.number, "base": self.base, "done": _ranges(self.done)}
        numbers = {"own": self.own, "begun_micros": self.begun_micros, "schema_id": self.schema_id}
        return json.dumps({**fields, **numbers})

    @classmethod
    def of(cls, snapshot: Snapshot) -> "ChunkBatch | None":
        """Return the chunk batch of a snapshot, None if the snapshot has none."""
        return read_fact(snapshot, COPY, cls.from_text)

    @classmethod
    def from_text(cls, text: str) -> "ChunkBatch":
        """Parse the text of `to_text`.

        Raises:
            ValueError, RecursionError: the text is not a chunk batch.
        """
        batch = parse_stored(text, _StoredBatch)
        ends = [end for first, last in batch.done for end in (first, last + 1)]
        if ends != sorted(ends) or not all(0 <= end <= MAX_CHUNKS for end in ends):
            raise ValueError(f"{batch.done} are not ranges of chunks")
        chunks = frozenset(chunk for first, last in batch.done for chunk in range(first, last + 1))
        return cls(batch.number, batch.base, chunks, batch.own, batch.begun_micros, batch.schema_id)


@dataclass(frozen=True)
class _StoredBatch:
    """The form of a chunk batch in a summary, with ranges of chunks."""

    number: int
    base: int
    done: list[tuple[int, int]]
    own: int
    begun_micros: int
    schema_id: int | None = None


def _ranges(chunks: Iterable[int]) -> list[list[int]]:
    ranges: list[list[int]] = []
    for chunk in sorted(chunks):
        if ranges and ranges[-1][1] == chunk - 1:
            ranges[-1][1] = chunk
        else:
            ranges.append([chunk, chunk])
    return ranges


def load_plans(lake: Lake) -> Mapping[str, CopyPlan]:
    """Return the newest plan of each table that is or was copied."""
    return _plans_of(lake.system_table(COPIES))


def load_plans_between(lake: Lake, after_micros: int | None, until_micros: int) -> Mapping[str, CopyPlan]:
    """Return the newest plans with positions in a closed interval; usually reads none."""
    table, first_micros = lake.system_table(COPIES), after_micros or 0
    newest = head(table)
    if newest is None or (position_of(newest) or 0) < first_micros:
        return {}
    plans = _plans_of(table).values()
    return {plan.table: plan for plan in plans if first_micros <= plan.position_micros <= until_micros}


def _plans_of(table: Table) -> Mapping[str, CopyPlan]:
    version = Version.newest(table)
    return _read_plans(version) if version is not None else {}


# A cycle needs the plans once for each table that is in no cut; the plans of a few pipelines are cached.
@lru_cache(maxsize=4)
@understanding(COPIES)
def _read_plans(version: Version) -> Mapping[str, CopyPlan]:
    plans = [
        CopyPlan(
            table=row["table_name"],
            number=row["number"],
            position_micros=from_datetime(row["position"]),
            planned_micros=from_datetime(row["planned_at"]),
            columns=row["columns"],
            chunks=tuple(row["chunks"]),
        )
        for row in version.table.scan(snapshot_id=version.snapshot_id).to_arrow().to_pylist()
    ]
    return {plan.table: plan for plan in sorted(plans, key=lambda plan: plan.number)}


def save_plans(lake: Lake, plans: Sequence[CopyPlan]) -> None:
    """Commit plans, each newer than the stored plan of its table.

    Raises:
        CommitConflict: another run has planned meanwhile; nothing was changed.
    """
    if not plans:
        return
    # The newest plans are read from the same version of the table to which the next ones are appended.
    table = lake.system_table(COPIES)
    plans_before = _plans_of(table)
    conflict = "Another run has planned the same initial copies; the next cycle continues with its plan."
    if any(plan.table in plans_before and plans_before[plan.table].number >= plan.number for plan in plans):
        raise CommitConflict(conflict)
    rows = [
        {
            "table_name": plan.table,
            "number": plan.number,
            "position": to_datetime(plan.position_micros),
            "planned_at": to_datetime(plan.planned_micros),
            "columns": plan.columns,
            "chunks": list(plan.chunks),
        }
        for plan in plans
    ]
    newest = str(max(plan.position_micros for plan in plans))
    with conflicts_as(conflict):
        table.append(pa.Table.from_pylist(rows, COPY_ROWS), snapshot_properties={POSITION: newest})


def load_copy_progress(table: Table | None, plan: CopyPlan) -> CopyProgress:
    """Return the progress of a plan on the branch of its table.

    A commit counts if its parent and columns are those for which its chunks were read: see `ChunkBatch`.

    Raises:
        CommitConflict: the branch holds a newer plan, which another run has made since this one was loaded.
    """
    if table is None:
        return CopyProgress(plan, frozenset(), 0, None, is_mixed=False)
    newest = head(table, COPY_BRANCH)
    for snapshot in ancestors_of(table, newest):
        chunk_batch = ChunkBatch.of(snapshot)
        if chunk_batch is None or chunk_batch.number < plan.number:
            break
        if chunk_batch.number > plan.number:
            raise plan.conflict()
        if chunk_batch.counts_as(snapshot):
            is_mixed = newest is not None and newest.snapshot_id != snapshot.snapshot_id
            rows, batches = count_rows(snapshot) or 0, _last_batches(table, snapshot, plan)
            return CopyProgress(plan, chunk_batch.done, rows, snapshot, is_mixed, batches)
    # Without chunks, a copy is where `main` is: see `align_branch`.
    is_mixed = newest is not None and newest not in ancestors_of(table, head(table))
    return CopyProgress(plan, frozenset(), 0, None, is_mixed)


def _last_batches(table: Table, newest: Snapshot, plan: CopyPlan) -> tuple[BatchTiming, ...]:
    batches = []
    for snapshot in islice(ancestors_of(table, newest), 2):
        chunk_batch = ChunkBatch.of(snapshot)
        if chunk_batch is None or chunk_batch.number != plan.number:
            break
        seconds = snapshot.timestamp_ms / 1e3 - chunk_batch.begun_micros / 1e6
        batches.append(BatchTiming(chunk_batch.own, chunk_batch.begun_micros, seconds))
    return tuple(batches)
