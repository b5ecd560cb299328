"""Cycles without Spark: the reader itself, its read progress, and the log's treatment of repeats."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from cdc_platform.model.stream.read_windows import ReadPlan, ReadWindow
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.sources.debezium.files.reader import MAX_LINES, FilesReading
from cdc_platform.sources.debezium.files.source import DebeziumSource
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.transactions.progress import PASSED, STATE, FileProgress

Record = dict[str, Any]
READ_MICROS: Final = 1_800_000_000_000_000
"""When the first cycle reads, after all that connectors of tests have written."""


@dataclass
class Cycles:
    """Reads the files of a source, cycle by cycle.

    ``log`` has the records that would be in the log, in its order: what has come again is left out.
    """

    settings: DebeziumSettings
    split_lines: int = MAX_LINES
    cycle: int = 0
    read_progress: dict[str, str] = field(default_factory=dict)
    log: list[Record] = field(default_factory=list)
    messages: list[Record] = field(default_factory=list)
    waiting: list[Mapping[str, Any]] = field(default_factory=list)

    def read(self) -> list[Record]:
        """Read what is new, and return the raw records of the cycle."""
        self.cycle += 1
        rows = self._read()
        for row in rows:
            if row["kind"] == RecordKind.FILE:
                report = json.loads(row["event"]["metadata"])
                if report["is_read"]:
                    self.read_progress[row["event"]["origin"]] = report["version"]
                if row["event"]["origin"] == STATE:
                    self.waiting = report.get("waiting", [])
        self.messages += [row for row in rows if row["kind"] == RecordKind.MESSAGE]
        identities = {_identity(row) for row in self.log}
        changes = [row for row in rows if row["kind"] == RecordKind.DATA_CHANGE]
        fresh = {_identity(row): row for row in changes if _identity(row) not in identities}
        self.log += sorted(fresh.values(), key=lambda row: str(row["record_order"]))
        return rows

    def _read(self) -> list[Record]:
        source = DebeziumSource(self.settings)
        files = sorted(source.store.list_files(), key=lambda file: file.path)
        progress = {file.path: FileProgress.of(self.read_progress.get(file.path)) for file in files}
        unread = [
            replace(file, read_bytes=progress[file.path].read_bytes)
            for file in files
            if progress[file.path].lacks(file) or progress[file.path].is_waiting
        ]
        read_micros = READ_MICROS + self.cycle
        lines = {file.path: progress[file.path].lines for file in unread}
        states = {"state": self.read_progress.get(STATE), "passed": self.read_progress.get(PASSED)}
        inputs = {"files": unread, "lines": lines, "forgotten": [], **states}
        plan = ReadPlan((ReadWindow("", read_micros - 1, read_micros),), inputs)
        batches = FilesReading(source.store, self.settings, self.cycle, plan, self.split_lines).locally()
        return [row for batch in batches for row in batch.to_pylist()]


def _identity(row: Record) -> tuple[str, str]:
    return row["server_transaction_id"], row["record_sequence"]


def append(file: Path, lines: Iterable[str]) -> None:
    """Let a file grow by whole lines."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as opened:
        opened.writelines(f"{line}\n" for line in lines)
