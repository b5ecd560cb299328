"""Files of events cut into splits, between transactions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cdc_platform.errors import SourceError
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.sources.debezium.files.segments import Segment, opened_lines
from cdc_platform.sources.debezium.files.split_starts import SplitStarts
from cdc_platform.sources.debezium.wire.lines import RawLine
from cdc_platform.sources.file_store import FileStore
from cdc_platform.sources.text_files import FileDamaged


@dataclass(frozen=True)
class FileSplit:
    """Consecutive lines of a stream, across files."""

    segments: tuple[Segment, ...]
    lines: int = 0
    text_bytes: int = 0

    @classmethod
    def merged(cls, splits: Sequence["FileSplit"]) -> "FileSplit":
        """Return consecutive splits as one."""
        segments: list[Segment] = []
        for segment in (segment for split in splits for segment in split.segments):
            first = segments.pop() if segments and segments[-1].file.path == segment.file.path else segment
            segments.append(replace(segment, begun=first.begun, read_bytes=first.read_bytes))
        lines, text_bytes = (sum(split.lines for split in splits), sum(split.text_bytes for split in splits))
        return cls(tuple(segments), lines, text_bytes)


@dataclass(frozen=True)
class SplitSize:
    """Size from which on a split ends where the next one may begin."""

    lines: int
    text_bytes: int


class _Growing:
    """A split that grows line by line."""

    def __init__(self) -> None:
        self.previous: RawLine | None = None
        self.lines = self.text_bytes = 0
        self._segments: list[Segment] = []
        self._current: Segment | None = None
        self._line = 0

    @property
    def previous_text(self) -> bytes | None:
        """The line before the next one; None at the beginning of a file."""
        return None if self.previous is None else self.previous.text

    def open(self, segment: Segment) -> None:
        """Go on with the lines of another file."""
        self._current, self._line, self.previous = segment, segment.begun, None

    def add(self, line: RawLine) -> None:
        """Take the next line."""
        self.lines += 1
        self.text_bytes += len(line.text)
        self._line += 1
        self.previous = line

    def close(self, *, is_cut: bool = False) -> None:
        """End with the lines of a file; there are more of it where it is cut."""
        current = self._current
        if current is not None:
            self._segments.append(replace(current, until_exclusive=self._line, is_cut=is_cut))
        self._current = None

    def take(self) -> FileSplit:
        """Return the split, and begin the next one, in the same file if that is open."""
        current, line, previous = self._current, self._line, self.previous
        self.close(is_cut=True)
        split = FileSplit(tuple(self._segments), self.lines, self.text_bytes)
        self._segments, self.lines, self.text_bytes = [], 0, 0
        if current is not None:
            read_bytes = current.read_bytes if previous is None else previous.read_bytes
            self._current = Segment(current.file, line, read_bytes)
        return split


@dataclass
class FileSplitter:
    """Cuts files into splits, in the order of their names, which is the order of arrival.

    Nothing is decoded but the few lines around each cut.

    Args:
        store: where the files are.
        files: those with lines that have not been read.
        begun: how many lines of each have been read.
        starts: finds the lines at which a split may begin.
        size: of a split, unless a transaction is larger.
        most_unpacked_bytes: how much text a gzip may have.
    """

    store: FileStore
    files: Sequence[SourceFile]
    begun: Mapping[str, int]
    starts: SplitStarts
    size: SplitSize
    most_unpacked_bytes: int
    failed: dict[str, str] = field(default_factory=dict)
    """Why a file could not be read to its end; the lines before belong to the splits all the same."""

    def splits(self) -> Iterator[FileSplit]:
        """Yield the splits; behind a file that cannot be read there is none, since later lines must wait."""
        growing = _Growing()
        for file in self.files:
            segment = Segment(file, self.begun[file.path], file.read_bytes)
            growing.open(segment)
            try:
                yield from self._splits_of(segment, growing)
            except (SourceError, FileDamaged) as error:
                self.failed[file.path] = f"{type(error).__name__}: {error}"
                growing.close(is_cut=True)
                break
            growing.close()
        yield growing.take()

    def _splits_of(self, segment: Segment, growing: _Growing) -> Iterator[FileSplit]:
        with opened_lines(self.store, segment, self.most_unpacked_bytes) as lines:
            for line in lines:
                if self._is_full(growing) and self.starts.may_begin(line.text, growing.previous_text):
                    yield growing.take()
                self.starts.follow(line.text)
                growing.add(line)

    def _is_full(self, growing: _Growing) -> bool:
        return growing.lines >= self.size.lines or growing.text_bytes >= self.size.text_bytes
