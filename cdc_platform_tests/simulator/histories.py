"""Histories without a server, and a reader that follows all their partitions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Any, Final

from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.simulator.history.history import History
from cdc_platform.simulator.history.hours import OpeningHours
from cdc_platform.simulator.sql.database import Database
from cdc_platform.simulator.stream.stream import StreamQuery
from cdc_platform.simulator.wire.simulator_settings import PartitionMode, SimulatorSettings
from cdc_platform.sources.spanner.stream.decode import decode_change_record
from cdc_platform.sources.spanner.stream.message_records import decode_message
from cdc_platform.sources.spanner.stream.record_rows import CHILDREN, DATA, RecordRow

ORIGIN: Final = 1_800_000_000_000_000
SECOND: Final = 1_000_000


@dataclass
class Simulated:
    """A database whose clock the test sets."""

    settings: SimulatorSettings
    now_micros: int
    database: Database = field(init=False)

    def __post_init__(self) -> None:
        hours = OpeningHours.always(self.settings, ORIGIN)
        self.database = Database(History(self.settings, hours), lambda: self.now_micros)

    @property
    def history(self) -> History:
        """The history up to the clock's time."""
        self.database.now_micros()
        return self.database.history

    def rows(self, token: str | None, start: int, end: int | None) -> Iterator[bytes]:
        """Yield the values of a change stream query's rows."""
        query = StreamQuery(start, end, token, 1000)
        self.database.stream.check(query)
        for batch in self.database.stream.rows(query, b"", Event()):
            yield from (row.values[0] for row in batch)

    def records(self, token: str | None, start: int, end: int | None) -> list[RecordRow]:
        """Return the records of a query, in GoogleSQL."""
        decode: Callable[[bytes], list[RecordRow]] = decode_change_record
        if self.settings.partition_mode is PartitionMode.MUTABLE_KEY_RANGE:
            decode = partial(decode_message, token=token or ROOT_TOKEN)
        return [record for row in self.rows(token, start, end) for record in decode(row)]


def simulated(seconds: float = 5.0, **settings: Any) -> Simulated:
    """Return a database with some seconds of history."""
    return Simulated(SimulatorSettings(**settings), ORIGIN + int(seconds * SECOND))


def follow(database: Simulated) -> dict[str, list[RecordRow]]:
    """Return the records of every partition up to the present, each read after all its parents."""
    end = database.now_micros
    records_by_token: dict[str, list[RecordRow]] = {"": database.records(None, ORIGIN, None)}
    waiting = announced(records_by_token[""])
    while waiting:
        token = next(
            token
            for token, (_, parents) in waiting.items()
            if all(parent in records_by_token for parent in parents)
        )
        start, _ = waiting.pop(token)
        if start <= end:
            records_by_token[token] = database.records(token, start, end)
            waiting |= announced(records_by_token[token])
    return records_by_token


def announced(records: list[RecordRow]) -> dict[str, tuple[int, list[str]]]:
    """Return start and parents of the children that records announce, by token."""
    return {
        token: (record.record_timestamp, parents)
        for record in records
        if record.kind == CHILDREN
        for token, parents in record.child_partitions or []
    }


def data_of(partitions: dict[str, list[RecordRow]]) -> list[RecordRow]:
    """Return the data change records of all partitions."""
    return [record for records in partitions.values() for record in records if record.kind == DATA]
