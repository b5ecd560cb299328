"""Names that columns of Datastream's events get in the lake."""

import pytest

from cdc_platform.model.base.names import case_key, is_reserved_column
from cdc_platform.model.schema.schema_policy import SchemaPolicy
from cdc_platform.sources.datastream.events.column_names import lake_names


@pytest.mark.parametrize("pair", [("adi", "ad\u0131"), ("\u03c3", "\u03c2"), ("s", "\u017f"), ("", "_")])
def test_names_that_spark_takes_for_one_are_apart(pair: tuple[str, str]) -> None:
    """Names that differ for Python alone get digests, as does an empty one."""
    names = lake_names(["id", *pair], ["id"], SchemaPolicy.EVOLVE)
    assert names["id"] == "id"
    assert len({case_key(name) for name in names.values()}) == 3
    assert not any(map(is_reserved_column, names.values()))
