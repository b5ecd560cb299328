"""The quarantine: records that could not enter the log, with their whole transactions."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, Not, Or
from pyiceberg.table import Table

from cdc_platform.errors import CommitConflict, LakeError
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.retries import commit_again
from cdc_platform.lake.commits.commits import (
    TAKEN,
    Version,
    ancestors_of,
    count_rows,
    fact,
    head,
    number_of,
    read_mark,
)
from cdc_platform.lake.commits.filters import all_of, at_most, equals, is_any
from cdc_platform.model.base.schemas import QUARANTINE_ROWS
from cdc_platform.model.base.stored_names import CYCLE, LOG, QUARANTINE
from cdc_platform.model.base.stored_texts import understanding
from cdc_platform.model.base.timestamps import from_datetime, to_datetime
from cdc_platform.model.stream.quarantined_records import QuarantinedRecord, ReplaySource

_OPEN: Final = equals("replayed_at", None)
_SAME_NAMES: Final = (
    *("cycle", "reason", "partition_token", "transaction_id", "record_id", "record", "origin"),
    "replayed_cycle",
)


@dataclass(frozen=True)
class ReplayMark:
    """Replay request at a record; see `QuarantinedRecord`."""

    micros: int
    cycle: int
    source: ReplaySource


def count_quarantined_records(lake: Lake, table: str | None = None) -> int:
    """Return the number of open records in quarantine, of one source table or of all."""
    of_table = AlwaysTrue() if table is None else equals("table_name", table)
    return len(_record_ids(lake, all_of(_OPEN, of_table)))


def describe_next_step(lake: Lake) -> str:
    """Return the reason why a pipeline has no tables or cuts yet, with advice."""
    count = count_quarantined_records(lake)
    if count and count_rows(head(lake.system_table(LOG))) == 0:
        return (
            f"all records read so far are in quarantine ({count}); `cdc-platform quarantine list` shows the "
            "reasons"
        )
    return "run a cycle first"


def may_lack_changes(lake: Lake, table: str) -> bool:
    """Return whether a table's changes are or were in quarantine: a record can lack its table's name."""
    return bool(_record_ids(lake, Or(equals("table_name", table), equals("table_name", None))))


def _record_ids(lake: Lake, condition: BooleanExpression) -> set[str]:
    quarantine = lake.system_table(QUARANTINE)
    # Every cycle asks, and quarantine is usually empty.
    if count_rows(head(quarantine)) == 0:
        return set()
    # Duplicates of an unusable record in later cycles count as one record.
    rows = quarantine.scan(condition, selected_fields=("record_id",)).to_arrow()
    return set(rows["record_id"].to_pylist())


@understanding(QUARANTINE)
def load_quarantine(lake: Lake, *, with_replayed: bool = False) -> list[QuarantinedRecord]:
    """Return the records in quarantine, one for each record and cycle, oldest first."""
    condition = AlwaysTrue() if with_replayed else _OPEN
    rows = lake.system_table(QUARANTINE).scan(condition).to_arrow()
    return sorted(map(_as_record, rows.to_pylist()), key=lambda record: record.identity)


def count_by_reason(lake: Lake) -> Counter[tuple[str | None, str]]:
    """Return the number of open records in quarantine, by source table and reason."""
    quarantine = lake.system_table(QUARANTINE)
    if count_rows(head(quarantine)) == 0:
        return Counter()
    columns = ("cycle", "record_id", "table_name", "reason", "replayed_at")
    rows = quarantine.scan(_OPEN, selected_fields=columns).to_arrow().sort_by("cycle").to_pylist()
    newest = {row["record_id"]: (row["table_name"], row["reason"]) for row in rows}
    return Counter(newest.values())


@dataclass(frozen=True, slots=True)
class QuarantinedPlace:
    """The origin of a record that is open or was replayed from its file, without its text.

    ``replayed_cycle`` is None for an open record; see `QuarantinedRecord`.
    """

    cycle: int
    record_id: str
    sequence: str
    origin: str
    replayed_cycle: int | None

    @property
    def identity(self) -> tuple[int, str]:
        """The identity that a replay mark refers to."""
        return self.cycle, self.record_id


def load_places(lake: Lake) -> Sequence[QuarantinedPlace]:
    """Return the records from files or topics that are open or were replayed from files; needs no Spark."""
    version = Version.newest(lake.system_table(QUARANTINE))
    return _read_places(version) if version is not None else ()


def mark_replayed(lake: Lake, marks: Mapping[tuple[int, str], ReplayMark]) -> None:
    """Mark records as replayed, in one commit.

    Args:
        lake: the pipeline's part of the lake.
        marks: marks by the identity of records; these belong to cycles that have been ordered.

    Raises:
        CommitConflict: other runs committed first at each attempt; nothing was changed.
    """
    if not marks:
        return
    newest = read_mark(lake.system_table(LOG)).cycle
    # A cycle that is being ordered may write its rows again: a file must not mix them with older ones.
    is_touched = all_of(at_most("cycle", newest), is_any("record_id", {record_id for _, record_id in marks}))

    def mark() -> None:
        table = lake.system_table(QUARANTINE)
        rows = [_with_mark(row, marks) for row in table.scan(is_touched).to_arrow().to_pylist()]
        table.overwrite(pa.Table.from_pylist(rows, QUARANTINE_ROWS), overwrite_filter=is_touched)

    problem = (
        "The replay was not recorded in quarantine, because other runs have committed; request it again."
    )
    commit_again(mark, CommitConflict(problem))


def _with_mark(row: dict[str, Any], marks: Mapping[tuple[int, str], ReplayMark]) -> dict[str, Any]:
    mark = marks.get((row["cycle"], row["record_id"]))
    if mark is None:
        return row
    columns = {"replayed_at": to_datetime(mark.micros), "replayed_cycle": mark.cycle}
    return {**row, **columns, "replayed_from": mark.source.value}


@dataclass(frozen=True)
class Replays:
    """All replay requests so far.

    Args:
        files: each file to read again, with the newest cycle that had been read at the time of the request.
        texts: records to replay from their texts, by the time of the request.
    """

    files: Mapping[str, int]
    texts: Mapping[int, Sequence[QuarantinedRecord]]

    @property
    def origins(self) -> frozenset[str]:
        """Files and topics with replayed events, which may repeat at any time."""
        of_texts = (record.origin for records in self.texts.values() for record in records)
        return frozenset(self.files) | {origin for origin in of_texts if origin is not None}


NO_REPLAY = Replays({}, {})


def load_replays(lake: Lake) -> Replays:
    """Return the requested replays; needs no Spark."""
    version = Version.newest(lake.system_table(QUARANTINE))
    return _read_replays(version) if version is not None else NO_REPLAY


# Every cycle asks several times; the replays of a few pipelines are cached.
@lru_cache(maxsize=4)
@understanding(QUARANTINE)
def _read_replays(version: Version) -> Replays:
    files: dict[str, int] = {}
    texts: dict[int, list[QuarantinedRecord]] = {}
    for record in _without_texts(version, Not(_OPEN)):
        if record.replayed_from is ReplaySource.FILE and record.origin is not None:
            files[record.origin] = max(record.replayed_cycle or 0, files.get(record.origin, 0))
        elif record.replayed_from is ReplaySource.TEXT and record.replayed_micros is not None:
            texts.setdefault(record.replayed_micros, []).append(record)
    return Replays(files, texts)


# Most cycles add nothing to quarantine.
@lru_cache(maxsize=4)
@understanding(QUARANTINE)
def _read_places(version: Version) -> Sequence[QuarantinedPlace]:
    fields = ("cycle", "transaction_id", "record_id", "origin", "replayed_at", "replayed_cycle")
    condition = Or(_OPEN, equals("replayed_from", ReplaySource.FILE.value))
    rows = version.table.scan(condition, selected_fields=fields, snapshot_id=version.snapshot_id).to_arrow()
    return tuple(
        QuarantinedPlace(row["cycle"], row["record_id"], _sequence(row), row["origin"], row["replayed_cycle"])
        for row in rows.to_pylist()
        if row["origin"] is not None
    )


def _sequence(row: Mapping[str, Any]) -> str:
    return str(row["record_id"]).removeprefix(f"{row['transaction_id']}/")


def find_taken_snapshot(log: Table) -> int | None:
    """Return the snapshot of quarantine whose replays the newest cycle of the log has taken, if any."""
    cycles = (entry for entry in ancestors_of(log, head(log)) if fact(entry, CYCLE) is not None)
    newest = next(cycles, None)
    return number_of(newest, TAKEN) if newest is not None else None


def untaken_records(lake: Lake, quarantine: Table, log: Table) -> tuple[QuarantinedRecord, ...]:
    """Return the records whose replay from raw records was requested, and that the log has not taken yet.

    Args:
        lake: the pipeline's part of the lake.
        quarantine: the version of quarantine to read.
        log: the version of the log, which names the snapshot of quarantine whose replays it has taken.

    Raises:
        CommitConflict: another run has extended the log since the quarantine was loaded, or that snapshot has
            expired since.
        LakeError: that snapshot is gone, so nothing shows which replays have been taken.
    """
    version, taken_id = Version.newest(quarantine), find_taken_snapshot(log)
    if taken_id is not None and quarantine.metadata.snapshot_by_id(taken_id) is None:
        named_now = find_taken_snapshot(lake.system_table(LOG)) or taken_id
        if lake.system_table(QUARANTINE).metadata.snapshot_by_id(named_now) is not None:
            raise CommitConflict("Another run has extended the log; the next cycle continues from there.")
        raise LakeError(
            f"Snapshot {taken_id} of `{lake.system_namespace}.{QUARANTINE}`, which records the replays so "
            "far, is gone. Restore the table; the platform never expires this snapshot."
        )
    if version is None:
        return ()
    requested_records = _read_records(version)
    before = _read_records(replace(version, snapshot_id=taken_id)) if taken_id is not None else {}
    return tuple(record for key, record in requested_records.items() if key not in before)


@lru_cache(maxsize=8)
@understanding(QUARANTINE)
def _read_records(version: Version) -> Mapping[tuple[int, str, int | None], QuarantinedRecord]:
    records = _without_texts(version, equals("replayed_from", ReplaySource.RECORDS.value))
    return {(*record.identity, record.replayed_micros): record for record in records}


def _without_texts(version: Version, condition: BooleanExpression) -> Iterator[QuarantinedRecord]:
    """Yield records without what the source sent: of all replays ever, these texts would fill the memory."""
    scan = version.table.scan(condition, snapshot_id=version.snapshot_id)
    # A snapshot that is older than a column lacks it.
    fields = [name for name in scan.projection().column_names if name != "record"]
    nothing = dict.fromkeys(QUARANTINE_ROWS.names)
    return (_as_record(nothing | row) for row in scan.select(*fields).to_arrow().to_pylist())


def replayed_records(lake: Lake) -> pa.Table:
    """Return the identities of all records that have been replayed, as the column `record_id`."""
    quarantine = lake.system_table(QUARANTINE)
    return (
        quarantine.scan(Not(_OPEN), selected_fields=("record_id", "replayed_at"))
        .to_arrow()
        .select(["record_id"])
    )


def has_replays(lake: Lake, table: str | None = None) -> bool:
    """Return whether records, of one source table or of any, have been replayed."""
    of_table = Or(equals("table_name", table), equals("table_name", None)) if table else AlwaysTrue()
    return bool(_record_ids(lake, all_of(Not(_OPEN), of_table)))


def _as_record(row: dict[str, Any]) -> QuarantinedRecord:
    moment, replay_time, source = (row[name] for name in ("record_timestamp", "replayed_at", "replayed_from"))
    return QuarantinedRecord(
        **{name: row[name] for name in _SAME_NAMES},
        table=row["table_name"],
        moment_micros=from_datetime(moment),
        replayed_micros=from_datetime(replay_time) if replay_time is not None else None,
        replayed_from=ReplaySource(source) if source is not None else None,
    )
