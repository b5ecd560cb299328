"""Records in quarantine, their selection, and the records that must be replayed together."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from cdc_platform.model.base.names import find_table
from cdc_platform.model.base.stored_names import QUARANTINE
from cdc_platform.model.base.stored_texts import as_shape, parse_stored, read_stored
from cdc_platform.model.stream.ordering_key import place_of

Part = TypeVar("Part")


class ReplaySource(StrEnum):
    """Input of the replay of a record."""

    FILE = "file"
    """The record's file: a cycle reads the whole file again."""
    TEXT = "text"
    """The event's own text, if its file is gone or lacks it, or it came from a topic."""
    RECORDS = "records"
    """The raw records of its transaction, which the lake keeps as the source sent them."""


@dataclass(frozen=True, slots=True)
class QuarantinedRecord:
    """One row of quarantine.

    Args:
        cycle: the cycle that quarantined it.
        reason: the reason why the log cannot have it.
        partition_token: the partition that delivered it.
        moment_micros: commit timestamp, or the time of the cycle that read it.
        transaction_id: identity of its transaction.
        record_id: identity of the source's record.
        table: the source table, None if the record does not name it.
        record: the record as the source sent it, JSON.
        origin: file, or topic and partition; None for change streams.
        replayed_micros: time of the request to replay it; None before that.
        replayed_cycle: the newest cycle that had been read at that time.
        replayed_from: input of the replay.
    """

    cycle: int
    reason: str
    partition_token: str
    moment_micros: int
    transaction_id: str | None
    record_id: str
    table: str | None
    record: str | None
    origin: str | None = None
    replayed_micros: int | None = None
    replayed_cycle: int | None = None
    replayed_from: ReplaySource | None = None

    @property
    def is_open(self) -> bool:
        """Whether its replay has not been requested."""
        return self.replayed_micros is None

    @property
    def name(self) -> str:
        """The record's displayed name: the identity of an event without a transaction repeats itself."""
        half = len(self.record_id) // 2
        is_twice = self.record_id[:half] == self.record_id[half + 1 :]
        return self.record_id[:half] if is_twice else self.record_id

    @property
    def sequence(self) -> str:
        """The `record_sequence` of its raw record, even if quarantine keeps no text."""
        return self.record_id.removeprefix(f"{self.transaction_id}/")

    @property
    def place(self) -> str:
        """The part of the ordering key that both halves of a Debezium key change share; empty if unknown."""
        record = self.raw_record
        return place_of(self._part(record.get("record_order") or record.get("ordering_key") or "", str))

    @property
    def raw_record(self) -> Mapping[str, Any]:
        """The parsed JSON of the record; empty if quarantine keeps no text of it.

        Raises:
            LakeDamaged: the text is not a JSON object.
        """
        return self._read(lambda text: parse_stored(text, dict[str, Any]))

    @property
    def event(self) -> Mapping[str, Any]:
        """The column `event` of the record; empty for change streams.

        Raises:
            LakeDamaged: it is not a JSON object.
        """
        return self._part(self.raw_record.get("event") or {}, dict[str, Any])

    def _part(self, value: Any, shape: type[Part]) -> Part:
        return self._read(lambda _: as_shape(value, shape))

    def _read(self, parse: Callable[[str], Part]) -> Part:
        return read_stored(parse, self.record or "{}", QUARANTINE, f"record {self.name}")

    @property
    def identity(self) -> tuple[int, str]:
        """The identity that a replay mark refers to; the mods of one record share it."""
        return self.cycle, self.record_id


@dataclass(frozen=True)
class QuarantineFilter:
    """Selection of quarantined records; None in a field does not narrow it.

    Args:
        table: the source table, or its name in the lake.
        reason: a part of the reason, in any case.
        cycle: the cycle that quarantined the records.
        record: name or identity of one record, or the last part of the name, which is an event's UUID.
    """

    table: str | None = None
    reason: str | None = None
    cycle: int | None = None
    record: str | None = None

    def matches(self, record: QuarantinedRecord) -> bool:
        """Return whether the filter selects a record."""
        return (
            (self.table is None or find_table(self.table, filter(None, [record.table])) is not None)
            and (self.reason or "").casefold() in record.reason.casefold()
            and self.cycle in (None, record.cycle)
            and self.record in (None, record.name, record.record_id, record.name.rpartition("/")[2])
        )


def with_related(
    selection: Iterable[QuarantinedRecord],
    open_records: Sequence[QuarantinedRecord],
    readable: Collection[str] = (),
    *,
    keeps_transactions: bool = False,
    pairs_halves: bool = False,
) -> list[QuarantinedRecord]:
    """Return the chosen records with all records that must be replayed with them.

    Reading a file again brings all of its events, several files may contain one event, and the log takes
    only whole transactions if the source identifies them.

    Args:
        selection: records of `open_records`.
        open_records: all open records.
        readable: origins that the replay reads again as a whole.
        keeps_transactions: whether the log takes only whole transactions.
        pairs_halves: whether the log takes both halves of a key change or neither.
    """

    def group_of(record: QuarantinedRecord) -> tuple[str, int] | None:
        if keeps_transactions:
            return f"transaction {record.transaction_id}", record.moment_micros
        return (f"place {record.place}", record.moment_micros) if pairs_halves and record.place else None

    of_each = [(record, _ties(record, readable, group_of(record))) for record in open_records]
    identities = {record.identity for record in selection}
    ties = {tie for record, its in of_each if record.identity in identities for tie in its}
    while True:
        members = [(record, its) for record, its in of_each if ties & its]
        more = {tie for _, its in members for tie in its}
        if more <= ties:
            return [record for record, _ in members]
        ties |= more


def _ties(
    record: QuarantinedRecord, readable: Collection[str], company: tuple[str, int] | None
) -> set[tuple[str, str | int | None]]:
    ties: set[tuple[str, str | int | None]] = {("record", record.record_id)}
    if record.origin is not None and record.origin in readable:
        ties.add(("file", record.origin))
    if company is not None:
        ties.add(company)
    return ties
