"""Reads of columns with repeated values, as the dictionaries of their files, in a tenth of the time."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, Table

_NOISE = "Iceberg does not have a dictionary type."
"""Start of pyiceberg's warning for every batch and column of such a read, which is harmless."""


class _Quiet(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(_NOISE)


@cache
def _silence() -> None:
    logging.getLogger("pyiceberg.io.pyarrow").addFilter(_Quiet())


def read_repeated_texts(
    table: Table,
    row_filter: str,
    text_columns: Sequence[str],
    *further: str,
    files: Iterable[FileScanTask] | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows of a table that match a filter, batch by batch, with dictionaries of repeated texts.

    Args:
        table: the table.
        row_filter: the filter.
        text_columns: text columns to return as dictionaries.
        further: further columns, including those of the filter.
        files: the files to read; None means all that may have such rows.
    """
    _silence()
    scan = table.scan(row_filter=row_filter, selected_fields=(*text_columns, *further))
    reader = ArrowScan(
        table.metadata, table.io, scan.projection(), scan.row_filter, dictionary_columns=tuple(text_columns)
    )
    for batch in reader.to_record_batches(scan.plan_files() if files is None else files):
        yield pa.Table.from_batches([batch])
