"""Reading columns whose values repeat: as dictionaries, as their files have them, in a tenth of the time."""

import logging
from collections.abc import Iterator, Sequence
from functools import cache

import pyarrow as pa
from pyiceberg.table import Table

_NOISE = "Iceberg does not have a dictionary type."
"""Begins what pyiceberg warns of for every batch and column that is read so; nothing is amiss."""


class _Quiet(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(_NOISE)


@cache
def _silence() -> None:
    logging.getLogger("pyiceberg.io.pyarrow").addFilter(_Quiet())


def read_repeated(
    table: Table, row_filter: str, repeated: Sequence[str], *further: str
) -> Iterator[pa.Table]:
    """Yield the rows of a table that a filter takes, batch by batch, with columns of texts that repeat.

    Args:
        table: the table.
        row_filter: which rows.
        repeated: columns of texts, which come as dictionaries.
        further: further columns, among them those of the filter.
    """
    _silence()
    scan = table.scan(row_filter=row_filter, selected_fields=(*repeated, *further))
    for batch in scan.to_arrow_batch_reader(dictionary_columns=tuple(repeated)):
        yield pa.Table.from_batches([batch])
