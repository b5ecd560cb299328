"""Ranges of lines in files of events, and how their lines are read."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from cdc_platform.model.stream.files import SourceFile
from cdc_platform.sources.debezium.wire.lines import Line, Lines, check_gzip, raw_lines
from cdc_platform.sources.file_store import FileStore
from cdc_platform.sources.text_files import CHUNK_BYTES, GZIP_MAGIC, FileDamaged

GROW_ONLY: Final = "It was cut, or rewritten. Files may grow only; give what is in it now another name."


@dataclass(frozen=True)
class Segment:
    """Consecutive lines of one file.

    Args:
        file: the file.
        first_line: how many lines of the file come before them.
        read_bytes: how many bytes come before them; 0 in a gzip, which is read from its beginning.
        until_exclusive: which line of the file is the first behind them; None if all others belong to them.
            A file may grow while it is read, and a task that is repeated must read the same lines.
        is_cut: whether the file has more lines, for another split.
    """

    file: SourceFile
    first_line: int
    read_bytes: int
    until_exclusive: int | None = None
    is_cut: bool = False


@contextmanager
def opened_lines(store: FileStore, segment: Segment) -> Iterator[Iterator[Line]]:
    """Yield the lines of a segment one by one; see `opened_chunks`."""
    with opened_chunks(store, segment) as chunks:
        lines = chain.from_iterable(chunk.one_by_one() for chunk in chunks)
        until = segment.until_exclusive
        yield lines if until is None else islice(lines, until - segment.first_line)


@contextmanager
def opened_chunks(
    store: FileStore, segment: Segment, max_unpacked_bytes: int | None = None
) -> Iterator[Iterator[Lines]]:
    """Yield the lines of a file from the first of a segment on, by chunks of the file.

    Args:
        store: where the file is.
        segment: the lines.
        max_unpacked_bytes: of the text of a gzip, which is checked to its end before any line is taken; None
            where that has been done.

    Raises:
        FileDamaged: the file is shorter than what was read of it, or a gzip cannot be read to its end.
        SourceError: the store does not give the file.
    """
    file, read_bytes = segment.file, segment.read_bytes
    if file.size_bytes < read_bytes:
        raise FileDamaged(f"{file.size_bytes} bytes instead of {read_bytes}. {GROW_ONLY}")
    with store.open_stream(file.path, max(read_bytes - 1, 0)) as stream:
        first = stream.read(CHUNK_BYTES)
        if max_unpacked_bytes is not None and not read_bytes and first.startswith(GZIP_MAGIC):
            with store.open_stream(file.path) as whole:
                check_gzip(whole, max_unpacked_bytes)
        chunks = raw_lines(stream, first, read_bytes)
        # Where a gzip was read up to, is known by the number of its lines.
        yield chunks if read_bytes else _without_first(chunks, segment.first_line)


def _without_first(chunks: Iterator[Lines], lines: int) -> Iterator[Lines]:
    remaining_lines = lines
    for chunk in chunks:
        left_out = min(remaining_lines, len(chunk)) if remaining_lines else 0
        remaining_lines -= left_out
        if not remaining_lines:
            yield chunk.without_first(left_out)
    if remaining_lines:
        raise FileDamaged(f"{lines - remaining_lines} lines instead of {lines}. {GROW_ONLY}")
