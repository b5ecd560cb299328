"""Tables under REPLICA IDENTITY FULL: every value is sent, so that null is NULL in every event."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.sources.debezium.rows.checkpoints import Decoded
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform_tests.sources.debezium.cycles import Cycles
from cdc_platform_tests.sources.debezium.written_events import (
    TABLE,
    decode_all,
    envelope,
    line,
    settings_with,
)
from cdc_platform_tests.support.debezium.connector import feed
from cdc_platform_tests.support.debezium.whole_rows import COLUMNS, NEW, OLD, POLICIES, halves


def test_a_delete_that_names_its_key_alone_shows_no_full() -> None:
    """The identity was FULL and is not any more, so that a null after it is in doubt."""
    full = line(envelope("u", before=OLD, after=OLD), {"id": 1})
    _, lost, gained = decode_all(full, *halves({"id": 1, "n": None, "v": None}, NEW), columns=COLUMNS)
    assert isinstance(lost, SourceEvent), lost
    assert isinstance(gained, FaultyEvent), gained


def in_a_block(text: str) -> str:
    """Return a message with a schema block, in which all columns but the key may be NULL."""
    message = json.loads(text)
    types = {"id": "int32", "n": "struct", "v": "string"}
    names = {"n": "io.debezium.data.VariableScaleDecimal"}
    fields = [
        {"field": name, "type": kind, "name": names.get(name), "optional": name != "id"}
        for name, kind in types.items()
    ]
    message["value"] = {
        "schema": {"fields": [{"field": "after", "fields": fields}]},
        "payload": message["value"],
    }
    return json.dumps(message)


def assert_null(decoded: list[Decoded]) -> None:
    """Check that both halves have come through, and that the row has NULL under its new key."""
    lost, gained = decoded
    assert isinstance(lost, SourceEvent), lost
    assert isinstance(gained, SourceEvent), gained
    assert json.loads(gained.new_values or "") == {"n": None, "v": "a"}
    assert gained.unavailable_columns == ()
    assert gained.previous_keys == lost.keys


@pytest.mark.parametrize("policies", POLICIES)
@pytest.mark.parametrize("old", [OLD, {**OLD, "n": None}])
def test_null_is_null_in_both_halves_of_a_key_change(
    old: Mapping[str, Any], policies: Mapping[str, Any]
) -> None:
    """The insert has no previous row, but its values were sent."""
    decoded = decode_all(*halves(old, NEW), columns=COLUMNS, full_identity=(TABLE,), null_policies=policies)
    assert_null(decoded)
    assert json.loads(decoded[0].old_values or "")["n"] == (old["n"] and "5")  # type: ignore[union-attr]


@pytest.mark.parametrize("policies", POLICIES)
def test_a_half_that_is_paired_late_has_its_nulls(tmp_path: Path, policies: Mapping[str, Any]) -> None:
    """Without headers the insert may be read first, and is known as a half once the delete is read."""
    settings = {"columns": COLUMNS, "full_identity": (TABLE,), "null_policies": policies}
    swapped = reversed(halves(OLD, NEW, with_headers=False))
    cycles = feed(Cycles(settings_with(input=FilesInput(str(tmp_path)), **settings)), list(swapped))
    gained = next(row for row in cycles.log if row["mod_type"] != "DELETE")
    assert gained["event"]["fault"] is None
    assert gained["event"]["previous_keys"] == '{"id":1}'
    assert not gained["event"]["unavailable_columns"]
    assert json.loads(gained["mods"][0]["new_values"])["n"] is None


@pytest.mark.parametrize("policies", POLICIES)
def test_the_delete_of_a_key_change_shows_full(policies: Mapping[str, Any]) -> None:
    """A previous row with a value in a nullable column is not an index's, so no setting is needed."""
    lines = map(in_a_block, halves(OLD, NEW))
    assert_null(decode_all(*lines, columns={}, null_policies=policies))


def test_null_without_a_sign_of_full_is_refused_with_both_remedies() -> None:
    """A table that has FULL already needs no ALTER TABLE, but its name in `full_identity`."""
    _, gained = decode_all(*halves({**OLD, "n": None}, NEW), columns=COLUMNS)
    assert isinstance(gained, FaultyEvent)
    assert "`full_identity`" in gained.reason


@pytest.mark.parametrize("policies", POLICIES)
def test_null_is_null_in_a_flattened_update(policies: Mapping[str, Any]) -> None:
    """A flattened event has no row before either; the setting says that every value was sent."""
    row = {"id": 1, "n": None, "v": "a", "__op": "u", "__source_schema": "public", "__source_table": "orders"}
    row["__deleted"] = "false"
    place = {"__source_txId": 7, "__source_lsn": 500, "__source_sequence": '["400","500"]'}
    (updated,) = decode_all(
        line({**row, **place}, {"id": 1}), columns=COLUMNS, full_identity=(TABLE,), null_policies=policies
    )
    assert isinstance(updated, SourceEvent), updated
    assert updated.unavailable_columns == ()
    assert json.loads(updated.new_values or "")["n"] is None


def test_a_masked_text_is_a_value() -> None:
    """A digest that an update writes is one under FULL, where no marker is masked."""
    digest = "0f" * 32
    fields = [
        {"field": "id", "type": "int32", "optional": False},
        {"field": "v", "type": "string", "optional": True, "parameters": {"masked": "true"}},
    ]
    schema = {"fields": [{"field": "after", "fields": fields}]}
    payload = envelope("u", before={"id": 1, "v": "a0" * 32}, after={"id": 1, "v": digest})
    (updated,) = decode_all(line({"schema": schema, "payload": payload}, {"id": 1}), columns={})
    assert isinstance(updated, SourceEvent), updated
    assert json.loads(updated.new_values or "") == {"v": digest}


def test_a_fault_names_the_table_of_the_lake() -> None:
    """A fault of a partition is of its table, by the name that the setting gives it."""
    settings: dict[str, Any] = {
        "columns": {"t_orders": COLUMNS[TABLE]},
        "table_name": "t_{table}",
        "partitions": {r"public\.orders_p\d": TABLE},
    }
    text = line(envelope("c", after={**OLD, "n": [1]}, source={"table": "orders_p1"}), {"id": 1})
    (fault,) = decode_all(text, **settings)
    assert isinstance(fault, FaultyEvent)
    assert fault.table == "t_orders"
