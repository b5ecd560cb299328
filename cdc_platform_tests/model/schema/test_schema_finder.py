"""Schema changes that only the source's information schema shows."""

from dataclasses import replace

import pytest

from cdc_platform.errors import SettingError
from cdc_platform.model.schema.exclusions import describe_findings
from cdc_platform.model.schema.schema_events import describe_event
from cdc_platform.model.schema.schema_finder import find_events
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.model.schema_windows import changes, follow, notes, observation, read_at


@pytest.mark.parametrize("is_exact", [True, False])
def test_the_source_orders_the_key_and_records_do_not(is_exact: bool) -> None:
    """A record numbers the columns of the key by their places in the table, which the key may not follow."""
    ordered = table("notes", {"h": "INT64", "id": "INT64"}, {"text": "STRING(9)"})
    places = {"id": 1, "h": 2, "text": 3}
    recorded = replace(
        ordered, columns=tuple(replace(column, ordinal=places[column.name]) for column in ordered.columns)
    )
    history, _ = follow(([observation(5, recorded)], read_at(9, ordered, is_exact=is_exact)))
    assert [column.name for column in history.tables["notes"].schema.key_columns] == ["h", "id"]
    again = find_events(
        history, 2, {"notes": [observation(15, recorded)]}, read_at(19, ordered, is_exact=is_exact)
    )
    assert again == ()


def test_a_table_that_is_made_again_has_the_order_of_its_key_from_the_source() -> None:
    """The columns are the same, so that only the order of the key shows the difference."""
    before, after = (table("notes", dict.fromkeys(names, "INT64"), {}) for names in (["a", "b"], ["b", "a"]))
    history, events = follow(([], read_at(5, before)), ([], read_at(9, after)))
    assert [column.name for column in history.tables["notes"].schema.key_columns] == ["b", "a"]
    assert 'columns of `notes` in the order of the key are ["b", "a"]' in describe_event(events[-1])


def test_generated_columns_are_a_finding_as_long_as_there_are_some() -> None:
    """No change stream sends them, so users must learn that the lake does not have them."""
    plain = read_at(9, notes(text="STRING(9)"))
    first, begun = follow(([], replace(plain, micros=5, generated={"notes": ("doubled",)})))
    text = " ".join(describe_findings(first))
    assert "`notes`: generated columns outside the key are not in the lake" in text
    assert "doubled. Compute them in a view" in text
    assert changes(begun) == []
    later, events = follow(([], replace(plain, micros=5, generated={"notes": ("doubled",)})), ([], plain))
    assert describe_findings(later) == ()
    assert "columns of `notes` that are generated are none at " in describe_event(events[-1])


@pytest.mark.parametrize(("before", "now", "advice"), [(0, 1, "must not name"), (1, 0, "must still name")])
@pytest.mark.parametrize("text", ["TIMESTAMP", "ARRAY<TIMESTAMP>"])
def test_a_setting_changes_no_column_of_the_lake(text: str, before: int, now: int, advice: str) -> None:
    """The stored values would be set aside, and rows whose key they are would have none."""
    kept = table("notes", {"at": text}, {"seen": text})
    types = (
        kept,
        replace(
            kept,
            columns=tuple(replace(column, type=column.type.with_nanoseconds()) for column in kept.columns),
        ),
    )
    history, _ = follow(([], read_at(5, types[before])))
    with pytest.raises(SettingError, match=f"`nanosecond_columns` {advice} `notes.at`"):
        find_events(history, 2, {}, read_at(9, types[now]))
