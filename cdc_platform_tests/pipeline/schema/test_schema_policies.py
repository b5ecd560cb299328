"""Bounds of a table's columns, whichever events bring them."""

import json

from cdc_platform.model.base.names import MOST_COLUMNS
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.pipeline.schema.schema_policies import too_wide


def shape(begin: int, end: int) -> tuple[str, str]:
    """Return the shape of events with a key and some columns."""
    names = ["id", *(f"c{number:05}" for number in range(begin, end))]
    columns = [
        {"name": name, "type": {"code": "INT64"}, "is_primary_key": name == "id", "ordinal_position": place}
        for place, name in enumerate(names, 1)
    ]
    return "t", json.dumps(columns)


def test_a_table_has_so_many_columns_at_most() -> None:
    """Events that would bring more are refused, and those that have room are not."""
    small, large, further = (
        shape(0, 10),
        shape(0, MOST_COLUMNS - 100),
        shape(MOST_COLUMNS, MOST_COLUMNS + 200),
    )
    assert list(too_wide(SchemaHistory(), [small, large])) == []
    ((refused, reason),) = too_wide(SchemaHistory(), [small, further, large])
    assert refused in (large, further)
    assert "columns with those of the event, and the most are 4096" in reason
    assert list(too_wide(SchemaHistory(), [("other", further[1]), large])) == []
