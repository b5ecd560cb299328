"""Workloads whose input changes in kind: a column comes, or what was refused is usable."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final
from unittest.mock import patch

from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.simulator.wire.simulator_settings import PartitionMode
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.debezium.settings.connector import NullPolicy, Strategy
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform.sources.spanner.stream import decode
from cdc_platform.sources.spanner.stream.decode import data_row
from cdc_platform.sources.spanner.stream.record_rows import RecordRow
from cdc_platform_tests.sources.debezium.written_events import COLUMNS, TABLE, settings_with
from cdc_platform_tests.support.datastream.files import MadeEvent
from cdc_platform_tests.support.datastream.workload import KEYS, TABLES, KeyedFiles
from cdc_platform_tests.support.days.debezium import PARTS, Habits, SessionsDay
from cdc_platform_tests.support.debezium.connector import Connector
from cdc_platform_tests.support.debezium.pipelines import append
from cdc_platform_tests.support.debezium.workload import Files, Outlet, Sessions
from cdc_platform_tests.support.workloads.spanner import BankWorkload, open_spanner
from cdc_platform_tests.support.workloads.traffic import changing_columns
from cdc_platform_tests.support.workloads.workload import Place, Workload, describe_difference, stored_rows

REFUSED: Final = "visits"
NEVER: Final = 10**9
"""Cycles from one change of the columns to the next."""


class WideningFiles(KeyedFiles):
    """Files whose events have one more column from the third time on."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._sent = 0
        self._notes: dict[tuple[str, int], str | None] = {}

    def send(self) -> None:
        """Write a file of each table."""
        self._sent += 1
        super().send()

    def differences(self, pipeline: Pipeline) -> list[str]:
        """Compare both tables with the rows that the newest changes have left."""
        return [
            text
            for table, rows in self._rows.items()
            for text in describe_difference(
                table,
                Counter((key, name, self._notes[table, key]) for key, name in rows.items()),
                stored_rows(pipeline, table, ("id", "name", "note")),
            )
        ]

    def _event(self, table: str, change: str, key: int, name: str) -> MadeEvent:
        made = super()._event(table, change, key, name)
        is_wide = self._sent > 2
        self._notes[table, key] = f"note on {name}" if is_wide else None
        return replace(made, row={**made.row, "note": f"note on {name}"}) if is_wide else made


class BackfilledFiles(KeyedFiles):
    """Files of a stream whose backfill is under way: a row may have changed since it was read, or be gone."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        rows = [(table, key, f"row {key}") for table in TABLES for key in range(0, KEYS, 2)]
        for table, key, name in rows:
            self._rows[table][key] = name
        self._backfill = [
            MadeEvent(f"b{table}{key}", table, "INSERT", 0, {"id": key, "name": name})
            for table, key, name in rows
        ]
        self._writer.dice.shuffle(self._backfill)
        self._part = len(self._backfill) // PARTS

    def send(self) -> None:
        """Write a file of changes, and one of read rows, of each table."""
        super().send()
        self._write_rows(self._backfill[: self._part])
        self._backfill = self._backfill[self._part :]

    def finish(self) -> None:
        """Write what is late, and the rest of the rows."""
        super().finish()
        self._write_rows(self._backfill)
        self._backfill = []

    def _write_rows(self, rows: list[MadeEvent]) -> None:
        for table in sorted({event.table for event in rows}):
            self._writer.folder.write([event for event in rows if event.table == table])


class RefusedFiles(KeyedFiles):
    """Files of which one table has no key, until the settings of the pipeline name one."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._has_key = False
        self._visits = Counter[tuple[Any, ...]]()
        self._whole = self.settings
        self._use(keyless={REFUSED: "refuse"})

    def send(self) -> None:
        """Write a file of each table."""
        super().send()
        writer = self._writer
        events = [
            writer.event(REFUSED, "INSERT", {"id": writer.number + 1, "name": f"visit {number}"}, ())
            for number in range(3)
        ]
        self._visits.update((event.row["id"], event.row["name"]) for event in events)
        writer.folder.write(events)

    def finish(self) -> None:
        """Write what is late, and name the key."""
        super().finish()
        self._use(keys={REFUSED: ("id",)})

    def differences(self, pipeline: Pipeline) -> list[str]:
        """Compare all tables with what was sent."""
        visits = stored_rows(pipeline, REFUSED, ("id", "name"))
        return [*super().differences(pipeline), *describe_difference(REFUSED, self._visits, visits)]

    def _use(self, **changes: Any) -> None:
        source = self._whole.source
        assert isinstance(source, DatastreamSettings)
        self.settings = replace(self._whole, source=replace(source, **changes))


@dataclass
class RefusedTransactions:
    """Transactions of Debezium of which some have a NULL that the settings refuse until the end.

    Args:
        place: where the workload runs.
        outlet: sink of the connector.
    """

    place: Place
    outlet: Outlet
    _sent: Connector = field(default_factory=Connector)
    _rows: dict[int, int] = field(default_factory=dict)
    _times: int = 0
    _policies: dict[str, NullPolicy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._input = self.outlet.open()

    @property
    def settings(self) -> PipelineSettings:
        """The settings of the pipeline."""
        source: DebeziumSettings = settings_with(
            input=self._input, has_transaction_topic=True, null_policies=self._policies
        )
        return self.place.settings(source, TABLE)

    def send(self) -> None:
        """Write a transaction that is refused between two that are not."""
        first = len(self._rows) + 1
        self._insert(first)
        self._sent.begin()
        self._sent.insert(first + 1, 5)
        self._sent.update(first, n=9, xs=None)
        self._sent.end()
        self._rows |= {first: 9, first + 1: 5}
        self._insert(first + 2)
        self._times += 1
        self.outlet.write([f"{line}\n" for line in self._sent.lines], self._times)
        self._sent.lines.clear()

    def finish(self) -> None:
        """Let the settings take the NULL for a value that was not sent."""
        self._policies = {"*": NullPolicy.UNAVAILABLE}

    def differences(self, pipeline: Pipeline) -> list[str]:
        """Compare the table with what was sent."""
        return describe_difference(
            TABLE, Counter(self._rows.items()), stored_rows(pipeline, TABLE, ("id", "n"))
        )

    def _insert(self, key: int) -> None:
        self._sent.begin()
        self._sent.insert(key, 1)
        self._sent.end()
        self._rows[key] = 1


@dataclass
class WideningTransactions:
    """Transactions of Debezium whose rows have one more column from the third time on.

    Args:
        place: where the workload runs.
    """

    place: Place
    _sent: Connector = field(default_factory=Connector)
    _rows: dict[int, tuple[int, str | None]] = field(default_factory=dict)
    _times: int = 0

    @property
    def settings(self) -> PipelineSettings:
        """The settings of the pipeline, which know the column once it is there."""
        columns = {TABLE: COLUMNS[TABLE] | ({"note": "text"} if self._times > 2 else {})}
        folder = FilesInput(str(self.place.folder))
        return self.place.settings(
            settings_with(input=folder, columns=columns, has_transaction_topic=True), TABLE
        )

    def send(self) -> None:
        """Write a transaction that inserts rows, and changes and deletes older ones."""
        self._times += 1
        begun = len(self._rows) + 10 * self._times
        self._sent.begin()
        for key in (*self._rows, *range(begun, begun + 4)):
            self._change(key)
        self._sent.end()
        append(self.place.folder / "events.jsonl", [f"{line}\n" for line in self._sent.lines])
        self._sent.lines.clear()

    def finish(self) -> None:
        """Do nothing: every transaction has been written whole."""

    def differences(self, pipeline: Pipeline) -> list[str]:
        """Compare the table with what was sent."""
        expected = Counter((key, *row) for key, row in self._rows.items())
        return describe_difference(TABLE, expected, stored_rows(pipeline, TABLE, ("id", "n", "note")))

    def _change(self, key: int) -> None:
        note = f"note {self._times}" if self._times > 2 else None
        row: dict[str, Any] = {"n": self._times} | ({"note": note} if note is not None else {})
        if key not in self._rows:
            self._sent.insert(key, **row)
        elif key % 4 == 0:
            self._sent.delete(key)
            del self._rows[key]
            return
        else:
            self._sent.update(key, **row)
        self._rows[key] = (self._times, note)


@dataclass
class MisreadBank:
    """A bank of which a version of the platform cannot decode some records, until a newer one comes.

    Args:
        bank: the bank.
        older: stands in for the decoder of the older version.
    """

    bank: BankWorkload
    older: Any

    @property
    def settings(self) -> PipelineSettings:
        """The settings of the pipeline."""
        return self.bank.settings

    def send(self) -> None:
        """Let a second pass."""
        self.bank.send()

    def finish(self) -> None:
        """Go on with the decoder of this version."""
        self.older.stop()

    def differences(self, pipeline: Pipeline) -> list[str]:
        """Compare the tables with the history."""
        return self.bank.differences(pipeline)


def copied_bank(place: Place) -> AbstractContextManager[BankWorkload]:
    """Return a bank that has rows when the pipeline begins."""
    return open_spanner(place, has_copies=True, preloaded_transfers=60)


def changing_bank(place: Place) -> AbstractContextManager[BankWorkload]:
    """Return a bank whose columns come, go and are retyped."""
    return open_spanner(place, schema_changes=changing_columns(every_s=0.8, laps=8))


def moving_bank(place: Place) -> AbstractContextManager[BankWorkload]:
    """Return a bank whose keys move several times a second, between partitions of two placements."""
    return open_spanner(
        place,
        partition_life_s=1.0,
        partition_mode=PartitionMode.MUTABLE_KEY_RANGE,
        placements=("asia",),
    )


@contextmanager
def misread_bank(place: Place) -> Iterator[Workload]:
    """Provide a bank whose every fourth record is malformed for the decoder that reads it first."""
    numbers = count()

    def older_data_row(record: bytes) -> RecordRow:
        if next(numbers) % 4 == 0:
            raise KeyError("mods")
        return data_row(record)

    with open_spanner(place) as bank:
        bank.checks_log = False
        older = patch.object(decode, "data_row", older_data_row)
        older.start()
        try:
            yield MisreadBank(bank, older)
        finally:
            patch.stopall()


@contextmanager
def widening_transactions(place: Place) -> Iterator[Workload]:
    """Provide transactions that get a column."""
    yield WideningTransactions(place)


OpenOutlet = Callable[[Place], AbstractContextManager[Outlet]]


@contextmanager
def transactions(open_outlet: OpenOutlet, place: Place) -> Iterator[Workload]:
    """Provide transactions that a connector writes to an outlet."""
    with open_outlet(place) as outlet:
        yield Sessions(place, Strategy.OMIT, outlet)


@contextmanager
def snapshots(habits: Habits, place: Place, open_outlet: OpenOutlet | None = None) -> Iterator[Workload]:
    """Provide the messages of a connector that takes a snapshot in parts, first of all."""
    with nullcontext() if open_outlet is None else open_outlet(place) as outlet:
        yield SessionsDay(place, NEVER, habits, outlet)


@contextmanager
def backfilled_files(place: Place) -> Iterator[Workload]:
    """Provide files of a stream whose backfill is under way."""
    yield BackfilledFiles(place)


@contextmanager
def widening_files(place: Place) -> Iterator[Workload]:
    """Provide files that get a column."""
    yield WideningFiles(place)


@contextmanager
def refused_files(place: Place) -> Iterator[Workload]:
    """Provide files of which some are refused at first."""
    yield RefusedFiles(place)


@contextmanager
def refused_transactions(place: Place, open_outlet: OpenOutlet | None = None) -> Iterator[Workload]:
    """Provide transactions of which some are refused at first."""
    with nullcontext(Files(place.folder)) if open_outlet is None else open_outlet(place) as outlet:
        yield RefusedTransactions(place, outlet)
