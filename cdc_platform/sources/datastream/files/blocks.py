"""Files of JSON lines in blocks: many lines, parsed once, and their rows a column at a time."""

from collections import deque
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO, Final

from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.base.names import unfit_columns_reason
from cdc_platform.sources.datastream.files.decoding import EventFaulty
from cdc_platform.sources.datastream.files.file_runs import FileEvent, form_of
from cdc_platform.sources.datastream.files.json_events import (
    SchemaName,
    check_event,
    facts_of,
    parsed_lines,
    row_of,
)
from cdc_platform.sources.datastream.files.lines import read_blocks
from cdc_platform.sources.datastream.settings.bounds import DEFAULT_BOUNDS, Bounds
from cdc_platform.sources.datastream.values.columns import RowBatch
from cdc_platform.sources.text_files import FileDamaged

MAX_AHEAD_BYTES: Final = 1 << 24
"""Maximum bytes of a file's text in memory at once; parsed, they take several times as much memory."""


@dataclass(frozen=True)
class EventGroup:
    """Events of one form.

    Args:
        rows: their rows, and those of events of this form with a fault; None if they have none.
        places: places of the events in their block.
    """

    rows: RowBatch | None
    places: list[int]


class LineBlock:
    """Lines, and their events, in groups.

    Attributes:
        events: event of each line; of a line with a fault, one without content.
        faults: error of each line without a usable event, and what the line states, by place.
        shapes: schema, columns and number of the rows that tables can have, in the order in which the columns
            came up.
        groups: the events by form.
    """

    def __init__(self, lines: Sequence[bytes], max_values: int) -> None:
        self.lines = lines
        self.size_bytes = sum(map(len, lines))
        self.faults: dict[int, tuple[Exception, Mapping[str, Any]]] = {}
        self.events = [
            content if isinstance(content, FileEvent) else self._checked(place, content)
            for place, content in enumerate(parsed_lines(lines, max_values))
        ]
        self.shapes: list[tuple[SchemaName, tuple[str, ...], int]] = []
        self.groups = self._grouped()

    def _checked(self, place: int, content: dict[str, Any] | EventFaulty) -> FileEvent:
        """Return the event in an object of another shape; of one with a fault, its row at most."""
        try:
            return check_event(content)
        except MALFORMED as error:
            self.faults[place] = error, {} if isinstance(content, EventFaulty) else content
        named_row = None if isinstance(content, EventFaulty) else row_of(content)
        if named_row is None:
            return FileEvent()
        (object_name, schema_key), row = named_row
        return FileEvent(object_name=object_name, schema_key=schema_key, payload=row)

    def _grouped(self) -> Collection[EventGroup]:
        alike: dict[tuple[Hashable, tuple[str, ...]], list[int]] = {}
        places, last = list[int](), None
        for place, event in enumerate(self.events):
            shape = form_of(event), () if event.payload is None else tuple(event.payload)
            # Mostly those of the event before, and comparing takes less time than hashing.
            if shape != last:
                places, last = alike.setdefault(shape, []), shape
            places.append(place)
        groups: dict[Hashable, EventGroup] = {}
        for (form, names), places in alike.items():
            first = self.events[places[0]]
            name = first.object_name or "", first.schema_key or ""
            group = groups.get(form)
            if group is None:
                rows = None if first.payload is None else RowBatch(name, [], [])
                group = groups[form] = EventGroup(rows, [])
            if group.rows is not None:
                reason = unfit_columns_reason(names)
                if reason is not None:
                    for place in places:
                        self.faults.setdefault(place, (EventFaulty(reason), facts_of(self.events[place])))
                    continue
                self.shapes.append((name, names, len(places)))
                group.rows.shapes.append(names)
                events = map(self.events.__getitem__, places)
                group.rows.rows += (event.payload for event in events if event.payload is not None)
            group.places.extend(place for place in places if place not in self.faults)
        return groups.values()


class Blocks:
    """The blocks of one file.

    Args:
        stream: the file, which must be seekable.
        bounds: limits of each line.
    """

    def __init__(self, stream: BinaryIO, bounds: Bounds = DEFAULT_BOUNDS) -> None:
        self._stream, self._bounds = stream, bounds
        self._unread = read_blocks(stream, bounds.max_block_bytes)
        self._queue: deque[LineBlock] = deque()
        self._queued_bytes = 0
        self._passed = 0
        self._is_read = False
        self._damage: FileDamaged | None = None

    def __iter__(self) -> Iterator[LineBlock]:
        """Yield the blocks, once.

        Raises:
            FileDamaged: the file cannot be read to its end.
        """
        while self._queue or self._read():
            yield self._queue[0]
            self._queued_bytes -= self._queue.popleft().size_bytes
            self._passed += 1
        if self._damage is not None:
            raise self._damage

    def scan(self) -> Iterator[LineBlock]:
        """Yield all blocks, and keep the position of the present one; damage silently ends them.

        Blocks at the start of the file are not parsed again, up to a limit.
        """
        is_first = self._passed == 0
        while is_first and self._queued_bytes < MAX_AHEAD_BYTES and self._read():
            pass
        queued_files = list(self._queue) if is_first else []
        yield from queued_files
        if not (is_first and self._is_read):
            yield from self._again(len(queued_files))

    def _again(self, count: int) -> Iterator[LineBlock]:
        place = self._stream.tell()
        self._stream.seek(0)
        try:
            blocks = read_blocks(self._stream, self._bounds.max_block_bytes)
            for lines in islice(blocks, count, None):
                yield LineBlock(lines, self._bounds.max_values)
        except FileDamaged:
            pass  # the reader of the events reports it
        finally:
            self._stream.seek(place)

    def _read(self) -> bool:
        try:
            lines = next(self._unread, None)
        except FileDamaged as error:
            self._damage, lines = error, None
        self._is_read = lines is None
        if lines is not None:
            self._queue.append(LineBlock(lines, self._bounds.max_values))
            self._queued_bytes += self._queue[-1].size_bytes
        return not self._is_read
