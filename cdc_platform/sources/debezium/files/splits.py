"""Files of events cut into splits, between transactions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cdc_platform.errors import SourceError
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.sources.debezium.files.segments import Segment, opened_chunks
from cdc_platform.sources.debezium.files.split_starts import SplitStarts
from cdc_platform.sources.debezium.wire.lines import Line, Lines
from cdc_platform.sources.file_store import FileStore
from cdc_platform.sources.text_files import FileDamaged


@dataclass(frozen=True)
class FileSplit:
    """Consecutive lines of a stream, across files."""

    segments: tuple[Segment, ...]
    lines: int = 0
    text_bytes: int = 0

    @classmethod
    def merge(cls, splits: Sequence["FileSplit"]) -> "FileSplit":
        """Return consecutive splits as one."""
        segments: list[Segment] = []
        for segment in (segment for split in splits for segment in split.segments):
            first = segments.pop() if segments and segments[-1].file.path == segment.file.path else segment
            segments.append(replace(segment, first_line=first.first_line, read_bytes=first.read_bytes))
        lines, text_bytes = (sum(split.lines for split in splits), sum(split.text_bytes for split in splits))
        return cls(tuple(segments), lines, text_bytes)


@dataclass(frozen=True)
class SplitSize:
    """Size from which on a split ends where the next one may begin."""

    lines: int
    text_bytes: int


class _SplitBuilder:
    """A split that grows line by line, or by many at once."""

    def __init__(self) -> None:
        self._previous: Line | None = None
        self.lines = self.text_bytes = 0
        self._segments: list[Segment] = []
        self._current: Segment | None = None
        self._line = 0

    @property
    def previous_text(self) -> bytes | None:
        """The line before the next one; None at the beginning of a file."""
        return None if self._previous is None else self._previous.text

    def open(self, segment: Segment) -> None:
        """Go on with the lines of another file."""
        self._current, self._line, self._previous = segment, segment.first_line, None

    def add(self, lines: int, text_bytes: int, last: Line) -> None:
        """Take the next lines."""
        self.lines += lines
        self.text_bytes += text_bytes
        self._line += lines
        self._previous = last

    def close(self, *, is_cut: bool = False) -> None:
        """End with the lines of a file; there are more of it where it is cut."""
        current = self._current
        if current is not None:
            self._segments.append(replace(current, until_exclusive=self._line, is_cut=is_cut))
        self._current = None

    def take(self) -> FileSplit:
        """Return the split, and begin the next one, in the same file if that is open."""
        current, line, previous = self._current, self._line, self._previous
        self.close(is_cut=True)
        split = FileSplit(tuple(self._segments), self.lines, self.text_bytes)
        self._segments, self.lines, self.text_bytes = [], 0, 0
        if current is not None:
            read_bytes = current.read_bytes if previous is None else previous.read_bytes
            # The file may have grown since it was listed.
            file = replace(current.file, size_bytes=max(current.file.size_bytes, read_bytes))
            self._current = Segment(file, line, read_bytes)
        return split


@dataclass
class FileSplitter:
    """Cuts files into splits, in the order of their names, which is the order of arrival.

    Nothing is decoded but the few lines around each cut.

    Args:
        store: where the files are.
        files: those with lines that have not been read.
        lines_read: how many lines of each have been read.
        starts: finds the lines at which a split may begin.
        size: of a split, unless a transaction is larger.
        max_unpacked_bytes: how much text a gzip may have.
    """

    store: FileStore
    files: Sequence[SourceFile]
    lines_read: Mapping[str, int]
    starts: SplitStarts
    size: SplitSize
    max_unpacked_bytes: int
    failed: dict[str, str] = field(default_factory=dict)
    """Reason why a file could not be read to its end; the earlier lines still belong to the splits."""

    def splits(self) -> Iterator[FileSplit]:
        """Yield the splits; behind a file that cannot be read there is none, since later lines must wait."""
        builder = _SplitBuilder()
        for file in self.files:
            segment = Segment(file, self.lines_read[file.path], file.read_bytes)
            builder.open(segment)
            try:
                yield from self._splits_of(segment, builder)
            except (SourceError, FileDamaged) as error:
                self.failed[file.path] = f"{type(error).__name__}: {error}"
                builder.close(is_cut=True)
                break
            builder.close()
        yield builder.take()

    def _splits_of(self, segment: Segment, builder: _SplitBuilder) -> Iterator[FileSplit]:
        with opened_chunks(self.store, segment, self.max_unpacked_bytes) as chunks:
            for chunk in chunks:
                lines = len(chunk)
                text_bytes = len(chunk.text) - lines
                if self._is_full(builder.lines + lines, builder.text_bytes + text_bytes):
                    yield from self._splits_in(chunk, builder)
                elif lines:
                    self.starts.follow(chunk)
                    builder.add(lines, text_bytes, chunk.last)

    def _splits_in(self, chunk: Lines, builder: _SplitBuilder) -> Iterator[FileSplit]:
        """Yield the splits that end in a chunk, by examining its lines one by one."""
        for line in chunk.one_by_one():
            is_full = self._is_full(builder.lines, builder.text_bytes)
            if is_full and self.starts.may_begin(line.text, builder.previous_text):
                yield builder.take()
            self.starts.follow(line)
            builder.add(1, len(line.text), line)

    def _is_full(self, lines: int, text_bytes: int) -> bool:
        return lines >= self.size.lines or text_bytes >= self.size.text_bytes
