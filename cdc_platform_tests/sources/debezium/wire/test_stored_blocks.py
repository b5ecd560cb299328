"""Schema blocks that a spool stores once."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from cdc_platform.errors import SpoolUnusable
from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.debezium.wire import stored_blocks
from cdc_platform.sources.debezium.wire.messages import RawMessage, parse_message
from cdc_platform.sources.debezium.wire.plain_lines import plain_change
from cdc_platform.sources.debezium.wire.schema_blocks import parsed_block
from cdc_platform.sources.debezium.wire.stored_blocks import store_block, use_blocks_of, with_blocks
from cdc_platform_tests.sources.debezium.written_events import decode_all, envelope, only_event, only_fault

ID: Final = {"type": "int64", "optional": False, "field": "id"}
DAY: Final = {"type": "int32", "optional": True, "name": "io.debezium.time.Date", "field": "day"}
KEY_BLOCK: Final = {"type": "struct", "fields": [ID]}
BLOCK: Final = {"type": "struct", "fields": [{"type": "struct", "fields": [ID, DAY], "field": "after"}]}


@pytest.fixture(autouse=True)
def no_spools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test begin in a process that has read no spool."""
    monkeypatch.setattr(stored_blocks, "_spools", set())
    parsed_block.cache_clear()


def line(key_block: Any, block: Any, after: dict[str, Any]) -> str:
    """Return an insert whose key and value have blocks."""
    key = {"schema": key_block, "payload": {"id": after["id"]}}
    value = {"schema": block, "payload": envelope("c", after=after)}
    return json.dumps({"topic": "cdc.public.t", "key": key, "value": value}, separators=(",", ":"))


def spooled(spool: Path, after: dict[str, Any]) -> str:
    """Return an insert as the spool has it."""
    key_block, block = (store_block(spool, json.dumps(block)) for block in (KEY_BLOCK, BLOCK))
    return line(key_block, block, after)


def test_equal_blocks_are_one_file(tmp_path: Path) -> None:
    """Its name is the digest of its content, in each spool."""
    first, other, again = (
        store_block(tmp_path / "a", "{}"),
        store_block(tmp_path / "a", "[]"),
        store_block(tmp_path / "b", "{}"),
    )
    assert first == again
    assert {"{}", "[]"} == {path.read_text() for path in (tmp_path / "a" / "schemas").iterdir()}
    assert (tmp_path / "a" / other).read_text() == "[]"


def test_an_event_with_the_name_of_its_block_is_decoded_as_one_with_the_block(tmp_path: Path) -> None:
    """That holds for the text that quarantine keeps, too, which needs no spool."""
    use_blocks_of(tmp_path)
    after = {"id": 7, "day": 19782}
    text = spooled(tmp_path, after)
    event = only_event(text, columns={})
    assert event.new_values == '{"day":"2024-02-29"}'
    assert only_event(line(KEY_BLOCK, BLOCK, after), columns={}) == event
    assert json.loads(line(KEY_BLOCK, BLOCK, after)) == json.loads(with_blocks(text))


def test_a_faulty_event_goes_to_quarantine_with_its_blocks(tmp_path: Path) -> None:
    """Its spool may be gone when it is replayed."""
    use_blocks_of(tmp_path)
    after = {"id": 7, "day": "x"}
    fault = only_fault(spooled(tmp_path, after), columns={})
    assert json.loads(line(KEY_BLOCK, BLOCK, after)) == json.loads(fault.text)


def test_a_missing_block_stops_the_reading(tmp_path: Path) -> None:
    """Each event of the table would go to quarantine otherwise."""
    use_blocks_of(tmp_path)
    text = spooled(tmp_path, {"id": 7, "day": 1})
    for path in (tmp_path / "schemas").iterdir():
        path.unlink()
    with pytest.raises(SpoolUnusable, match=r"lacks the file `schemas/\w{32}.json`, .* Put it back"):
        decode_all(text, columns={})


@pytest.mark.parametrize("content", ["", "{", "null", json.dumps(BLOCK | {"fields": []})])
def test_a_changed_block_stops_the_reading(tmp_path: Path, content: str) -> None:
    """Its events would go to quarantine, or get other values; an engine writes it again."""
    use_blocks_of(tmp_path)
    text = spooled(tmp_path, {"id": 7, "day": 19782})
    for path in (tmp_path / "schemas").iterdir():
        path.write_text(content)
    with pytest.raises(SpoolUnusable, match="or it was changed or cannot be read"):
        decode_all(text, columns={})
    assert text == spooled(tmp_path, {"id": 7, "day": 19782})
    assert only_event(text, columns={}).new_values == '{"day":"2024-02-29"}'


def test_a_column_may_have_the_text_of_a_name(tmp_path: Path) -> None:
    """Only the name before a key or value is one: another file was asked for, which ended the cycle."""
    use_blocks_of(tmp_path)
    name = f"schemas/{0:032}.json"
    fault = only_fault(spooled(tmp_path, {"id": 7, "day": "x", "schema": name}), columns={})
    assert json.loads(line(KEY_BLOCK, BLOCK, {"id": 7, "day": "x", "schema": name})) == json.loads(fault.text)


def test_lines_that_were_copied_from_a_spool_go_to_quarantine(tmp_path: Path) -> None:
    """The reason says where they can be read; so it does for messages of topics."""
    text = spooled(tmp_path, {"id": 7, "day": 1})
    assert text == with_blocks(text)
    fault = only_fault(text, columns={})
    assert text == fault.text
    assert "Lines of a spool can be read with `input.engine` only" in fault.reason
    message = json.loads(text)
    key, value = (json.dumps(message[part], separators=(",", ":")) for part in ("key", "value"))
    sent = RawMessage("cdc.public.t", key, value)
    assert plain_change(sent) is None
    parsed = parse_message(sent, 0)
    assert isinstance(parsed, FaultyEvent)
    assert "Lines of a spool" in parsed.reason
