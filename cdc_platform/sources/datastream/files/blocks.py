"""Files of JSON lines in blocks: many lines, parsed once, and their rows a column at a time."""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import BinaryIO, Final

from cdc_platform.sources.datastream.files.json_events import Parsed, SchemaName, parsed_lines, row_of
from cdc_platform.sources.datastream.files.lines import read_blocks
from cdc_platform.sources.datastream.settings.bounds import DEFAULT_BOUNDS, Bounds
from cdc_platform.sources.datastream.values.columns import RowBatch
from cdc_platform.sources.text_files import FileDamaged

MAX_AHEAD_BYTES: Final = 1 << 24
"""Maximum bytes of a file's text in memory at once; parsed, they take several times as much memory."""


class LineBlock:
    """Lines, the parsed content of each, and the batch of its row."""

    def __init__(self, lines: Sequence[bytes], max_values: int) -> None:
        self.lines = lines
        self.size_bytes = sum(map(len, lines))
        self.events: Sequence[Parsed] = parsed_lines(lines, max_values)
        self._batches: dict[tuple[SchemaName, tuple[str, ...]], RowBatch] = {}
        self.batch_of: Sequence[RowBatch | None] = list(map(self._batch_of, self.events))

    @property
    def batches(self) -> Sequence[RowBatch]:
        """The rows that tables can have, in the order in which their schemas and columns came up."""
        return [batch for batch in self._batches.values() if batch.name_reason is None]

    def _batch_of(self, event: Parsed) -> RowBatch | None:
        named_row = row_of(event)
        if named_row is None:
            return None
        schema, row = named_row
        names = tuple(row)
        batch = self._batches.get((schema, names))
        if batch is None:
            batch = self._batches[schema, names] = RowBatch(schema, names)
        batch.rows.append(row)
        return batch


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
        queued = list(self._queue) if is_first else []
        yield from queued
        if not (is_first and self._is_read):
            yield from self._again(len(queued))

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
