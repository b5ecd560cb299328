"""The ledger: which files, in which version, or which partitions, up to which offset, have been read.

It is derived from what the committed ticks report, on from where the stored one ends. A file that is to be
replayed counts as unread until a later tick has read it. A file that could not be read has an entry under a
path of its own, `unread_path`, until it has been read.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from cdc_platform.lake.catalog.damage import understanding
from cdc_platform.lake.catalog.lake import RAW, READ, Lake
from cdc_platform.lake.commits.commits import TICK, head, read_mark
from cdc_platform.lake.state.quarantine import load_replays
from cdc_platform.model.base.schemas import FILES
from cdc_platform.model.stream.files import READ_AGAIN
from cdc_platform.model.stream.quarantined_records import HeldRecord
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.model.stream.unread import UNREAD, FailedRead, failed_reads, unread_path

REPLAY: Final = "quarantine@"
"""Begins the path under which the ledger has a replay of texts that a tick has taken."""


def read_ledger(lake: Lake) -> Mapping[str, str]:
    """Return what has been read, with its version, and store what is new of it; needs no Spark.

    The version of what is to be read again is `READ_AGAIN`.
    """
    stored = _store_ledger(lake)
    asked = load_replays(lake).files
    again = {path for path, tick in asked.items() if stored.ticks.get(path, tick + 1) <= tick}
    if not again:
        return stored.versions
    # Who asks for a replay wants no pause that began before.
    ended = {unread_path(path) for path in again if stored.failed_ticks.get(path, 0) <= asked[path]}
    kept = {path: version for path, version in stored.versions.items() if path not in ended}
    return {**kept, **dict.fromkeys(again, READ_AGAIN)}


@dataclass(frozen=True)
class ReadFile:
    """The newest read of a file: the tick of the read, and the version of the file."""

    tick: int
    version: str


def last_reads(lake: Lake, paths: Iterable[str]) -> Mapping[str, ReadFile]:
    """Return the newest read of each of these files that has been read; needs no Spark."""
    stored = _store_ledger(lake)
    return {
        path: ReadFile(stored.ticks[path], stored.versions[path]) for path in paths if path in stored.ticks
    }


def waiting_texts(lake: Lake) -> tuple[int, Sequence[HeldRecord]] | None:
    """Return when the oldest replay of texts that no tick has taken was asked for, and what it asks for."""
    asked = load_replays(lake).texts
    if not asked:
        return None
    taken = _store_ledger(lake).versions
    waiting = [micros for micros in sorted(asked) if replay_path(micros) not in taken]
    return (waiting[0], asked[waiting[0]]) if waiting else None


def replay_path(micros: int) -> str:
    """Return the path of a replay that was asked for at a moment."""
    return f"{REPLAY}{micros}"


def list_failed(lake: Lake) -> Mapping[str, FailedRead]:
    """Return the files whose newest read failed, by path; needs no Spark, and stores nothing."""
    stored, committed = lake.system_table(READ), read_mark(lake.system_table(RAW)).tick
    rows = [stored.scan().to_arrow().cast(FILES)] if head(stored) is not None else []
    new = _reported_after(lake, read_mark(stored).tick, committed)
    return failed_reads(_derive(pa.concat_tables([*rows, new])).versions)


@dataclass(frozen=True)
class _Ledger:
    """Each path with the version that was read last, and the tick that did; and what has failed since.

    ``failed_ticks`` has the tick of each file's failed read, by the file's own path.
    """

    versions: Mapping[str, str]
    ticks: Mapping[str, int]
    failed_ticks: Mapping[str, int] = field(default_factory=dict)


def _store_ledger(lake: Lake) -> _Ledger:
    committed = read_mark(lake.system_table(RAW)).tick
    while True:
        stored = lake.system_table(READ)
        mark = read_mark(stored)
        if mark.tick >= committed:
            return _stored_ledger(stored)
        new = _reported_after(lake, mark.tick, committed)
        try:
            stored.append(new, snapshot_properties={TICK: str(committed)})
        except CommitFailedException:
            # Somebody else has derived the same meanwhile.
            continue


@dataclass(frozen=True)
class _Version:
    """A snapshot of the stored ledger; what it holds never changes."""

    location: str
    snapshot_id: int
    table: Table = field(compare=False)


def _stored_ledger(table: Table) -> _Ledger:
    snapshot = head(table)
    if snapshot is None:
        return _Ledger({}, {})
    return _read(_Version(table.location(), snapshot.snapshot_id, table))


# A tick asks for it twice; the newest of a few pipelines are kept.
@lru_cache(maxsize=4)
def _read(version: _Version) -> _Ledger:
    return _derive(version.table.scan(snapshot_id=version.snapshot_id).to_arrow())


@understanding(READ)
def _derive(rows: pa.Table) -> _Ledger:
    rows = rows.sort_by("tick")
    is_failure = pc.starts_with(rows["path"], UNREAD)
    paths, versions, ticks = _columns(rows.filter(pc.invert(is_failure)))
    read = _Ledger(dict(zip(paths, versions, strict=True)), dict(zip(paths, ticks, strict=True)))
    failed: dict[str, FailedRead] = {}
    failed_ticks: dict[str, int] = {}
    for path, text, tick in zip(*_columns(rows.filter(is_failure)), strict=True):
        if read.ticks.get(path.removeprefix(UNREAD), 0) < tick:
            failed[path] = FailedRead.from_text(text).after(failed.get(path))
            failed_ticks[path.removeprefix(UNREAD)] = tick
    told = {path: found.to_text() for path, found in failed.items()}
    return _Ledger({**read.versions, **told}, read.ticks, failed_ticks) if told else read


def _columns(rows: pa.Table) -> tuple[list[Any], ...]:
    return tuple(rows[name].to_pylist() for name in ("path", "version", "tick"))


@understanding(RAW)
def _reported_after(lake: Lake, after_exclusive: int, until_inclusive: int) -> pa.Table:
    """Return what the ticks of an interval have read to the end, and what they could not read."""
    window = f"kind = '{RecordKind.FILE.value}' and tick > {after_exclusive} and tick <= {until_inclusive}"
    scan = lake.system_table(RAW).scan(row_filter=window, selected_fields=("kind", "tick", "event"))
    rows = scan.to_arrow().select(["tick", "event"]).to_pylist()
    told = ((row["tick"], row["event"]["origin"], json.loads(row["event"]["metadata"])) for row in rows)
    found = [(tick, *entry) for tick, path, facts in told if (entry := _entry(path, facts)) is not None]
    columns = list(zip(*found, strict=True)) or [(), (), ()]
    return pa.table(dict(zip(FILES.names, columns, strict=True)), FILES)


def _entry(path: str, told: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the path and the version that a report leaves in the ledger, None where it leaves none."""
    if told["is_read"]:
        return path, told["version"]
    failure = FailedRead.of_report(told)
    return (unread_path(path), failure.to_text()) if failure is not None else None
