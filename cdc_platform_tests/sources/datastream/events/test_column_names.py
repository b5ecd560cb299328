"""Names that columns of Datastream's events get in the lake."""

import pytest

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.base.names import MAX_COLUMN_CHARACTERS, case_key, is_reserved_column
from cdc_platform.model.schema.schema_policy import SchemaPolicy
from cdc_platform.sources.datastream.events.column_names import lake_names


@pytest.mark.parametrize("pair", [("adi", "ad\u0131"), ("\u03c3", "\u03c2"), ("s", "\u017f"), ("", "_")])
def test_names_that_spark_takes_for_one_are_different(pair: tuple[str, str]) -> None:
    """Names that differ for Python alone get digests, as does an empty one."""
    names = lake_names(["id", *pair], ["id"], SchemaPolicy.EVOLVE)
    assert names["id"] == "id"
    assert len({case_key(name) for name in names.values()}) == 3
    assert not any(map(is_reserved_column, names.values()))


@pytest.mark.parametrize("keys", [(), ("n" * 256,)])
def test_no_column_has_a_name_that_is_too_long(keys: tuple[str, ...]) -> None:
    """Under every policy such an event is a fault; a name with a digest stays within the limit."""
    with pytest.raises(RecordUnreadable, match="256 characters, but the limit is 255"):
        lake_names(["id", "n" * 256], keys, SchemaPolicy.EVOLVE)
    name = "__" + "n" * 253
    assert len(lake_names([name], [], SchemaPolicy.EVOLVE)[name]) == MAX_COLUMN_CHARACTERS
