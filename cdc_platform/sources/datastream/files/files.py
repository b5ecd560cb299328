"""Datastream's files of all formats."""

import re
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import BinaryIO, Final

from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.datastream.events.event_runs import EventRun
from cdc_platform.sources.datastream.files.avro_files import read_avro
from cdc_platform.sources.datastream.files.container import MAGIC
from cdc_platform.sources.datastream.files.decoding import Decoding, faulty_file
from cdc_platform.sources.datastream.files.json_files import read_json
from cdc_platform.sources.text_files import GZIP_MAGIC, FileDamaged, read_chunks

SUFFIXES: Final = (".avro", ".json", ".jsonl", ".json.gz", ".jsonl.gz")
"""Suffixes of files with events."""
_MAX_SPACES: Final = 1_000
_MAX_BYTES: Final = 64 * 1024**2
"""Maximum bytes before the first object in a file of JSON lines."""
_OBJECT: Final = re.compile(rb"^[^\S\n]*\{", re.MULTILINE)
"""The start of a line with an object."""


def read_runs(source: bytes | BinaryIO, decoding: Decoding) -> Iterator[Sequence[EventRun | FaultyEvent]]:
    """Yield the events of each block of a file; the format is detected from the file header.

    Blocks come in order, and the events of one in any order. No data is dropped silently: unreadable data
    becomes a faulty event, one for each line or record, and one without a position for a file or the rest of
    one.

    Args:
        source: the file; a stream must be seekable.
        decoding: further facts about types.
    """
    stream = BytesIO(source) if isinstance(source, bytes) else source
    head = stream.read(len(MAGIC))
    stream.seek(0)
    if not head:
        yield [faulty_file("The file is empty: not even a header is in it", bytes=0)]
    elif head == MAGIC:
        yield from read_avro(stream, decoding)
    elif (reason := _not_json(stream)) is not None:
        yield [faulty_file(reason, first_bytes=head.hex())]
    else:
        yield from read_json(stream, decoding)


def _not_json(stream: BinaryIO) -> str | None:
    """Return the reason why a file is not one of JSON lines, None if it is; rewinds the stream."""
    is_gzip = stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    stream.seek(0)
    is_empty, line, read_bytes = True, b"", 0
    try:
        for chunk in read_chunks(stream):
            is_empty = is_empty and not chunk
            if _OBJECT.search(chunk) or _OBJECT.match(line + chunk[:_MAX_SPACES]):
                return None
            # A line may begin at the end of a chunk, with spaces.
            spaces = chunk.rpartition(b"\n")[2] if b"\n" in chunk else line + chunk
            line = spaces[-_MAX_SPACES:] if spaces.isspace() or not spaces else b"."
            read_bytes += len(chunk)
            if read_bytes > _MAX_BYTES:
                break
    except FileDamaged as error:
        return f"The file is damaged: {error}"
    finally:
        stream.seek(0)
    if is_gzip and is_empty:
        return "The file is the gzip of an empty file"
    return "The file is neither Avro nor JSON lines"
