"""Change stream queries: validation with Spanner's texts, and the rows of one partition as they appear."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cdc_platform.simulator.history.history import Clock, History
from cdc_platform.simulator.history.partitions import Partition
from cdc_platform.simulator.stream.delivery import Deliveries
from cdc_platform.simulator.stream.messages import heartbeat_message, start_rows
from cdc_platform.simulator.stream.records import child_row, heartbeat_row
from cdc_platform.simulator.wire.chunks import Cursor, Row
from cdc_platform.simulator.wire.problems import Refusal, shown_moment, start_in_past
from cdc_platform.simulator.wire.simulator_settings import PartitionMode, RootParents

HEARTBEAT_MS_LOWEST: Final = 100
HEARTBEAT_MS_HIGHEST: Final = 300_000
LATEST_START_MICROS: Final = 600 * 1_000_000
LONGEST_QUERY_MICROS: Final = 1800 * 1_000_000
"""Limit for a stream with mutable key ranges; others may be read without an end."""
ROWS_TOGETHER: Final = 100
"""Minimum rows of a message about the past; otherwise there would be one message for each second of it."""


@dataclass(frozen=True)
class StreamQuery:
    """The arguments of a read function, and its placement; ends are inclusive."""

    start_micros: int | None
    end_micros: int | None
    token: str | None
    heartbeat_ms: int | None
    has_read_options: bool = False
    placement: str = ""


class ChangeStream:
    """The only change stream of the simulated database."""

    def __init__(self, history: History, clock: Clock) -> None:
        self._history, self._clock = history, clock
        self._dialect = history.settings.dialect
        self._deliveries = Deliveries(history)
        self._has_mutable_ranges = history.settings.partition_mode is PartitionMode.MUTABLE_KEY_RANGE

    def now_micros(self) -> int:
        """Return the current time, and generate the history up to it."""
        now_micros = self._clock()
        self._history.advance(now_micros)
        return now_micros

    @property
    def earliest_micros(self) -> int:
        """The first time whose records are still available."""
        retained_micros = self._clock() - self._history.settings.retention_s * 1_000_000
        return max(self._history.origin_micros, retained_micros)

    def check(self, query: StreamQuery) -> None:
        """Check the arguments.

        Raises:
            Refusal: an argument is invalid; the texts are those of Spanner's emulator.
        """
        start = _checked_start(query)
        if self._has_mutable_ranges:
            _check_end(start, query.end_micros)
        now_micros = self.now_micros()
        partition = None if query.token is None else self._partition(query.token)
        if partition is not None and partition.placement != query.placement:
            # Only a part of this text is Spanner's.
            raise Refusal(
                "INVALID_ARGUMENT",
                f"Partition token {partition.token} does not belong to the placement TVF.",
            )
        earliest, latest = self.earliest_micros, now_micros + LATEST_START_MICROS
        if partition is not None and (partition.end_micros or now_micros) < earliest:
            raise Refusal(
                "OUT_OF_RANGE",
                "This partition is no longer valid. All Change Stream records associated with this partition "
                "have expired and have been deleted, as specified by the Change Stream retention period.",
            )
        if start > latest:
            raise Refusal(
                "OUT_OF_RANGE",
                "Specified start_timestamp is too far in the future. Please specify a start_timestamp within "
                f"the earliest read timestamp: {shown_moment(earliest)}, and the current maximum start "
                f"timestamp: {shown_moment(latest)}. Received start_timestamp: {shown_moment(start)}.",
            )
        if start < earliest:
            raise start_in_past(earliest, start)
        if partition is not None:
            _check_within(partition.start_micros, start, partition.end_micros or latest)

    def rows(self, query: StreamQuery, resume_token: bytes, is_over: threading.Event) -> Iterator[list[Row]]:
        """Yield the rows of a checked query in batches, until its end or until `is_over` is set."""
        start = query.start_micros or 0
        if query.token is None:
            yield from self._first_rows(start, query.placement, is_over)
            return
        partition = self._partition(query.token)
        position = Cursor.from_token(resume_token) if resume_token else Cursor(start, 0)
        yield from PartitionRead(self, partition, query, position, is_over).batches()

    def child_rows(self, partition: Partition) -> list[bytes]:
        """Return the child partitions records of a partition that has ended; none if its keys move."""
        if self._has_mutable_ranges:
            return []
        end = partition.end_micros or 0
        children = [(child.token, child.parents) for child in partition.children]
        # Spanner may announce children in one record or in several.
        records = [children] if partition.serial % 3 else [[child] for child in children]
        return [child_row(self._dialect, end, number, group) for number, group in enumerate(records)]

    def records(self, partition: Partition, first: int, last: int) -> Iterator[list[tuple[int, bytes]]]:
        """Yield the data change records of a partition."""
        return self._deliveries.records(partition, first, last)

    def next_block_micros(self, now_micros: int) -> int:
        """Return when the history continues beyond its generated part."""
        hours = self._history.hours
        return hours.start_micros(hours.block_of(now_micros) + 1)

    def heartbeat(self, micros: int) -> bytes:
        """Return a heartbeat record."""
        return heartbeat_message(micros) if self._has_mutable_ranges else heartbeat_row(self._dialect, micros)

    def _partition(self, token: str) -> Partition:
        partition = self._history.tree.find(token)
        if partition is None:
            raise Refusal(
                "INVALID_ARGUMENT",
                "Specified partition_token is invalid, as it does not belong to the Change Stream associated "
                f"with the TVF. Received partition_token: {token}.",
            )
        return partition

    def _first_rows(self, start: int, placement: str, is_over: threading.Event) -> Iterator[list[Row]]:
        while (now_micros := self.now_micros()) < start and not is_over.wait(
            (start - now_micros) / 1_000_000
        ):
            pass
        live = self._history.tree.live_at(start)
        if self._has_mutable_ranges:
            roots = [partition for partition in live if partition.placement == placement]
            if not roots:
                # Spanner's answer for a placement that is newer than the start is unknown.
                roots = self._history.tree.first_of(placement)
                start = max([start, *(partition.start_micros for partition in roots)])
            yield [Row((row,), None) for row in start_rows(start, [each.token for each in roots])]
            return
        is_null = self._history.settings.root_parents is RootParents.NULL
        parents: tuple[str | None, ...] = (None,) if is_null else ()
        yield [
            Row((child_row(self._dialect, start, number, [(partition.token, parents)]),), None)
            for number, partition in enumerate(live)
        ]


class PartitionRead:
    """One query of one partition: available records at once, and later ones as they appear."""

    def __init__(
        self,
        stream: ChangeStream,
        partition: Partition,
        query: StreamQuery,
        position: Cursor,
        is_over: threading.Event,
    ) -> None:
        self._stream, self._partition, self._position = stream, partition, position
        self._end_micros = query.end_micros
        self._heartbeat_micros = (query.heartbeat_ms or HEARTBEAT_MS_LOWEST) * 1000
        self._is_over = is_over
        self._has_sent = False
        self._resumed = position

    def batches(self) -> Iterator[list[Row]]:
        """Yield rows until the partition or the query ends."""
        last_sent_micros = self._stream.now_micros()
        while not self._is_over.is_set():
            now_micros = self._stream.now_micros()
            end_micros = self._partition.end_micros
            last = min(micros for micros in (now_micros, self._end_micros, end_micros) if micros is not None)
            for batch in self._data(last):
                last_sent_micros = now_micros
                yield batch
            if end_micros is not None and last == end_micros:
                yield self._children(end_micros)
                return
            if self._end_micros is not None and last == self._end_micros:
                yield from self._closing(last)
                return
            if now_micros - last_sent_micros >= self._heartbeat_micros:
                last_sent_micros = now_micros
                yield [self._heartbeat(last)]
            self._sleep(now_micros, last_sent_micros)

    def _data(self, last: int) -> Iterator[list[Row]]:
        skip = self._position.rows
        batch: list[Row] = []
        for records in self._stream.records(self._partition, self._position.micros, last):
            for micros, record in records:
                if micros == self._position.micros and skip:
                    skip -= 1
                    continue
                batch.append(Row((record,), self._after(micros)))
            if len(batch) >= ROWS_TOGETHER:
                self._has_sent = True
                yield batch
                batch = []
        if batch:
            self._has_sent = True
            yield batch
        if last >= self._position.micros:
            self._position = Cursor(last + 1, 0)

    def _after(self, micros: int) -> Cursor:
        rows = self._position.rows if micros == self._position.micros else 0
        self._position = Cursor(micros, rows + 1)
        return self._position

    def _children(self, end_micros: int) -> list[Row]:
        count = self._resumed.rows if self._resumed.micros == end_micros else 0
        rows = enumerate(self._stream.child_rows(self._partition), start=1)
        return [Row((row,), Cursor(end_micros, number)) for number, row in rows if number > count]

    def _closing(self, last: int) -> Iterator[list[Row]]:
        """Yield a heartbeat at the end of a bounded query without records; one with records just ends."""
        if not self._has_sent:
            yield [self._heartbeat(last)]

    def _heartbeat(self, micros: int) -> Row:
        return Row((self._stream.heartbeat(micros),), Cursor(micros + 1, 0))

    def _sleep(self, now_micros: int, last_sent_micros: int) -> None:
        """Wait for the next possible event: a record, a new block, a heartbeat, or the end."""
        next_block = self._stream.next_block_micros(now_micros)
        moments = [last_sent_micros + self._heartbeat_micros, next_block]
        if self._end_micros is not None:
            moments.append(self._end_micros)
        if self._partition.end_micros is not None:
            moments.append(self._partition.end_micros)
        for records in self._stream.records(self._partition, now_micros + 1, next_block):
            moments.append(records[0][0])
            break
        self._is_over.wait(max(0.001, (min(moments) - now_micros) / 1_000_000))


def _checked_start(query: StreamQuery) -> int:
    """Return the start of a query with individually valid arguments."""
    if query.start_micros is None:
        raise Refusal("INVALID_ARGUMENT", "start_timestamp must not be null.")
    if query.end_micros is not None and query.end_micros < query.start_micros:
        raise Refusal(
            "INVALID_ARGUMENT",
            "If end_timestamp is specified, start_timestamp must be <= end_timestamp. Received "
            f"start_timestamp: {shown_moment(query.start_micros)}, end_timestamp: "
            f"{shown_moment(query.end_micros)}.",
        )
    if query.heartbeat_ms is None:
        raise Refusal("INVALID_ARGUMENT", "heartbeat_milliseconds must not be null.")
    if not HEARTBEAT_MS_LOWEST <= query.heartbeat_ms <= HEARTBEAT_MS_HIGHEST:
        raise Refusal(
            "OUT_OF_RANGE",
            f"heartbeat_milliseconds must be within min {HEARTBEAT_MS_LOWEST} and max "
            f"{HEARTBEAT_MS_HIGHEST}. Received heartbeat_milliseconds: {query.heartbeat_ms}.",
        )
    if query.has_read_options:
        raise Refusal("UNIMPLEMENTED", "read_options must be null.")
    return query.start_micros


def _check_end(start_micros: int, end_micros: int | None) -> None:
    if end_micros is None:
        raise Refusal("INVALID_ARGUMENT", "end_timestamp must not be null.")
    latest = start_micros + LONGEST_QUERY_MICROS
    if end_micros > latest:
        raise Refusal(
            "OUT_OF_RANGE",
            f"Specified end_timestamp is too far after start_timestamp: {shown_moment(start_micros)}. Please "
            f"specify an end_timestamp at or before {shown_moment(latest)}. Received end_timestamp: "
            f"{shown_moment(end_micros)}.",
        )


def _check_within(first_micros: int, start_micros: int, last_micros: int) -> None:
    """Refuse a start outside the life of its partition; both ends are inclusive."""
    if not first_micros <= start_micros <= last_micros:
        raise Refusal(
            "OUT_OF_RANGE",
            "Specified start_timestamp is invalid for the partition. Please specify a start_timestamp within "
            f"{shown_moment(first_micros)} and {shown_moment(last_micros)}. Received start_timestamp: "
            f"{shown_moment(start_micros)}.",
        )
