"""Keys as they were spelled before their columns got other types."""

import pytest

from cdc_platform.model.rows.row_key import KeyColumn, RowKey
from cdc_platform.model.schema.column_versions import Bound, ColumnHistory, ColumnVersion
from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.pipeline.on_demand.former_keys import former_keys


def history(*codes: str) -> ColumnHistory:
    """Return a table whose key had these types, each converted from the previous one."""
    last = len(codes) - 1
    versions = (
        ColumnVersion(
            "id", f"id_{number}", ColumnType(code), is_primary_key=True, ordinal=1, since=Bound(number, None),
            until=None if number == last else Bound(number + 1, None), before=number - 1 if number else None,
        )
        for number, code in enumerate(codes)
    )  # fmt: skip
    return ColumnHistory("t", tuple(versions))


@pytest.mark.parametrize(
    ("codes", "kind", "value", "former"),
    [
        (("BYTES",), "binary", "aw==", []),
        (("STRING", "BYTES"), "binary", "aw==", [("string", "k")]),
        (("STRING", "BYTES"), "binary", "/w==", []),  # no text: no row had it before
        (("STRING", "BYTES"), "binary", None, [("string", None)]),
        (("BYTES", "STRING"), "string", "k", [("binary", "aw==")]),
        (("STRING", "BYTES", "STRING"), "string", "k", [("binary", "aw==")]),
    ],
)
def test_a_key_has_the_spellings_of_its_former_types(
    codes: tuple[str, ...], kind: str, value: str | None, former: list[tuple[str, str | None]]
) -> None:
    """Each is what the source would convert to the key; an earlier type counts once."""
    keys = former_keys(history(*codes), RowKey((KeyColumn("id", kind),), (value,)))
    assert former == [(key.columns[0].kind, key.values[0]) for key in keys]
