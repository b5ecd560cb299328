"""Contents of the files with raw records, which the tasks that write them note in their footers.

So neither the process that runs a cycle nor Spark reads the records of a window again to describe them,
unless a compaction has written their file, which then has no notes, or it has records of two windows.
"""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import FileScanTask, Table

from cdc_platform.lake.commits.commits import Version
from cdc_platform.lake.commits.data_files import read_notes
from cdc_platform.lake.state.repeated_texts import read_repeated_texts
from cdc_platform.model.base.stored_names import RAW
from cdc_platform.model.base.stored_texts import parse_stored, read_stored
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.reading.window_content import (
    SHAPE,
    WindowContent,
    content_from_json,
    content_of,
    content_to_json,
)

_CONTENT: Final = "cdc.content.1"
"""Entry of a footer; the number is that of its format."""
_MAX_CHARACTERS: Final = 1_000_000
"""Of an entry; many columns of many tables would make footers slow to read."""
_READERS: Final = 16
_FURTHER: Final = ("kind", "record_timestamp")
_OF_EVENTS: Final = ("record_order", "event.source_timestamp", "event.fault")
_OF_RECORDS: Final = ("server_transaction_id",)


class ContentNotes:
    """Notes the content of one file with raw records."""

    def __init__(self) -> None:
        self._content = WindowContent()

    def are_apart(self, rows: pa.RecordBatch) -> pa.Array:
        """Return which rows are no data changes: later steps read either kind."""
        return pc.not_equal(rows["kind"], RecordKind.DATA_CHANGE.value)

    def add(self, rows: pa.Table) -> None:
        """Add the rows of one row group."""
        if rows["kind"][0].as_py() == RecordKind.DATA_CHANGE:
            self._content = self._content.plus(content_of(rows))

    def texts(self) -> Mapping[str, str]:
        """Return the content of all data changes so far, unless its shapes are large."""
        content = self._content
        text = json.dumps(content_to_json(content))
        while len(text) > _MAX_CHARACTERS and len(content.places) > 1:
            content = content.with_fewer_places()
            text = json.dumps(content_to_json(content))
        return {_CONTENT: text} if len(text) <= _MAX_CHARACTERS else {}


def data_changes_between(after_micros: int | None, until_micros: int) -> str:
    """Return the filter of the raw data change records between two positions of the log."""
    return between_positions(RecordKind.DATA_CHANGE, after_micros, until_micros)


def between_positions(kind: RecordKind, after_micros: int | None, until_micros: int) -> str:
    """Return the filter of the raw records of a kind between two positions of the log."""
    until = to_datetime(until_micros).isoformat()
    condition = f"kind = '{kind.value}' and record_timestamp <= '{until}'"
    if after_micros is None:
        return condition
    return f"{condition} and record_timestamp > '{to_datetime(after_micros).isoformat()}'"


def measure_content(raw: Table, after_micros: int | None, until_micros: int) -> WindowContent:
    """Return the content of the raw data change records between two positions of the log; needs no Spark."""
    version = Version.newest(raw)
    return _measure(version, after_micros, until_micros) if version is not None else WindowContent()


# Ordering, completion, the history of the schema and the checks ask for the same window.
@lru_cache(maxsize=4)
def _measure(version: Version, after_micros: int | None, until_micros: int) -> WindowContent:
    raw, records = version.table, data_changes_between(after_micros, until_micros)
    files = [*raw.scan(row_filter=records).plan_files()]
    with ThreadPoolExecutor(_READERS) as readers:
        contents = [*readers.map(partial(_noted, raw, after_micros, until_micros), files)]
    content = _sum(note for note in contents if note is not None)
    plain_files = [file for file, note in zip(files, contents, strict=True) if note is None]
    if not plain_files:
        return content
    is_of_events = "event" in raw.schema().as_arrow().names
    fields = (*_FURTHER, *(_OF_EVENTS if is_of_events else _OF_RECORDS))
    batches = read_repeated_texts(raw, records, SHAPE, *fields, files=plain_files)
    return content.plus(_sum(map(content_of, batches)))


def _noted(
    raw: Table, after_micros: int | None, until_micros: int, file: FileScanTask
) -> WindowContent | None:
    """Return the content of a file's part of a window from its notes, None if they do not state it."""
    content = None if file.delete_files else _content_of_file(raw, file.file.file_path)
    if content is None or content.first_micros is None or content.last_micros is None:
        return content
    begins_within = after_micros is None or content.first_micros > after_micros
    return content if begins_within and content.last_micros <= until_micros else None


def _content_of_file(raw: Table, path: str) -> WindowContent | None:
    text = read_notes(raw.io, path).get(_CONTENT)
    return read_stored(_parse, text, RAW, f"the footer of {path}") if text is not None else None


def _parse(text: str) -> WindowContent:
    return content_from_json(parse_stored(text, dict))


def _sum(contents: Iterator[WindowContent]) -> WindowContent:
    content_sum = WindowContent()
    for content in contents:
        content_sum = content_sum.plus(content)
    return content_sum
