"""A table of every type that Spanner has, and a row of it, for copies whose answers have something wrong."""

from typing import Final

from hypothesis import strategies as st

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.sources.spanner.client.wire import MISSHAPEN, items
from cdc_platform.sources.spanner.copying.columns import values_to_batch
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.fuzzing.mutations import TEXTS, bent, listed, plain, trees
from cdc_platform_tests.sources.spanner.fake_server import Plain, to_value

GOOD_COPY: Final[dict[str, Plain]] = {
    "id": "7",
    "flag": True,
    "single": 0.5,
    "double": "Infinity",
    "amount": "1.5",
    "name": "a",
    "doc": '{"a":1}',
    "uuid": "0b8a3c9e-5d0e-4a5b-9d0a-3f7a2c1b4d5e",
    "age": "P1Y",
    "data": "AP8=",
    "day": "2026-01-31",
    "at": "2026-11-21T06:00:00.123456Z",
    "numbers": ["1", None],
    "odd": ["a", None, 1.5],
}
_TYPES: Final = {
    "flag": "BOOL",
    "single": "FLOAT32",
    "double": "FLOAT64",
    "amount": "NUMERIC",
    "name": "STRING(MAX)",
    "doc": "JSON",
    "uuid": "UUID",
    "age": "INTERVAL",
    "data": "BYTES(MAX)",
    "day": "DATE",
    "at": "TIMESTAMP",
    "numbers": "ARRAY<INT64>",
    "odd": "HOLOGRAM",
}


def copied_table() -> TableSchema:
    """Return the table, whose key is `id`."""
    return table("copied", {"id": "INT64"}, _TYPES)


_COPIED: Final = copied_table()


def check_copy(data: bytes) -> None:
    """Check that rows of a copy are an Arrow batch, or the one error that there is.

    The error names table and column; a good row of the same answer is not taken, since a copy is of all rows.
    """
    good = _good_row()
    values = _values_of(data)
    for place, column in enumerate(_COPIED.columns):
        row = [*good[:place], values[place % len(values)], *good[place + 1 :]]
        try:
            batch = values_to_batch(_COPIED, [*good, *row, *good])
        except RecordUnreadable as error:
            _check_names(str(error), f"`{column.name}`", "`copied`")
        else:
            batch.validate(full=True)
            assert batch.slice(0, 1).to_pylist() == batch.slice(2).to_pylist()


def _values_of(data: bytes) -> list[bytes]:
    try:
        return items(data) or [data]
    except MISSHAPEN:
        return [data]


def _check_names(message: str, *names: str) -> None:
    assert [name for name in names if name not in message] == []


def _good_row() -> list[bytes]:
    return [to_value(GOOD_COPY[column.name]).SerializeToString() for column in _COPIED.columns]


def copy_inputs() -> st.SearchStrategy[bytes]:
    """Return rows, as lists of values, with something wrong in them."""
    seeds = [[GOOD_COPY[column.name] for column in _COPIED.columns]]
    values = trees(seeds).map(lambda tree: to_value(listed(plain(tree))).SerializeToString())
    texts = st.sampled_from(TEXTS).map(lambda text: to_value([listed(text)]).SerializeToString())
    return st.one_of(values, texts, bent(values), st.binary(max_size=40))
