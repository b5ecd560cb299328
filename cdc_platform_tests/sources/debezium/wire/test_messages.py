"""Lines of files and octets of topics become messages, or say why they cannot."""

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.debezium.wire.messages import Message, RawMessage, parse_line, parse_raw
from cdc_platform.sources.debezium.wire.schema_blocks import Fields, load_json, part_of, payload_of
from cdc_platform_tests.sources.debezium.captures_read import read_messages

VALUE: Final = {"op": "r", "source": {}}


def parsed(fields: Any) -> Message:
    """Return the message of a line."""
    message = parse_line(json.dumps(fields).encode(), 3)
    assert isinstance(message, Message), message
    return message


FORMS: Final[list[tuple[dict[str, Any], Any]]] = [
    # a line, and its key
    ({"topic": "t", "key": {"id": 1}, "value": VALUE}, {"id": 1}),
    ({"topic": "t", "key": '{"id":1}', "value": json.dumps(VALUE)}, {"id": 1}),
    ({"key": None, "value": VALUE}, None),
    # kcat says payload, and names the headers and their values in turn
    ({"topic": "t", "partition": 0, "offset": 1, "key": '{"id":1}', "payload": json.dumps(VALUE)}, {"id": 1}),
]


@pytest.mark.parametrize(("fields", "key"), FORMS)
def test_key_and_value_are_embedded_or_texts(fields: dict[str, Any], key: Any) -> None:
    """Key and value may be JSON within the line, or texts of JSON."""
    message = parsed(fields)
    assert (key, VALUE, True) == (message.key, message.value, message.has_key)


def test_a_value_alone_has_an_unknown_key() -> None:
    """A line that is an event, or a row, is the value alone: of its key nothing is known."""
    for value in (VALUE, {"schema": {}, "payload": VALUE}, {"id": 1, "value": 2, "__op": "c"}):
        message = parsed(value)
        assert value == message.value
        assert not message.has_key


def test_a_tombstone_has_no_value() -> None:
    """A value of null is a message, not a missing one."""
    assert parsed({"topic": "t", "key": {"id": 1}, "value": None}).value is None


HEADERS: Final[list[Any]] = [
    {"a": "x", "k": {"id": 1}},
    {"a": "x", "k": '{"id":1}'},
    [["a", "x"], ["k", '{"id":1}']],
    [{"key": "a", "value": "x"}, {"key": "k", "value": {"id": 1}}],
    ["a", "x", "k", '{"id":1}'],
]


@pytest.mark.parametrize("headers", HEADERS)
def test_headers_are_read_in_every_form(headers: Any) -> None:
    """Headers are an object, pairs, objects, or names and values in turn."""
    message = parsed({"topic": "t", "value": VALUE, "headers": headers, "timestamp": 1_700_000_000_123})
    expected = {"a": "x", "k": {"id": 1}}
    assert expected == message.headers
    assert message.timestamp_micros == 1_700_000_000_123_000


def test_numbers_keep_their_digits() -> None:
    """Neither great integers nor decimals pass through a float."""
    text = "[9223372036854775807, 1.10, 123456789012345678901234567890.5]"
    expected = [2**63 - 1, Decimal("1.10"), Decimal("123456789012345678901234567890.5")]
    assert expected == load_json(text)
    assert str(load_json(text)[1]) == "1.10"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '{"value": {}, "partition": "x"}',
        "\udcff",
        '{"value": {"op": "c", "source": {"lsn": 5, "connector": "\udcff"}}}',
        '{"value": {}, "headers": ["odd"]}',
        "[" * 9000,
    ],
)
def test_a_bad_line_is_a_fault_with_its_text(text: str) -> None:
    """A line that cannot be read goes to quarantine, and the others are read."""
    fault = parse_line(text.encode(errors="surrogateescape"), 5)
    assert isinstance(fault, FaultyEvent)
    assert fault.position == 5
    fault.text.encode()


@pytest.mark.parametrize("is_gzip", [False, True])
def test_files_are_read_in_their_order(tmp_path: Path, *, is_gzip: bool) -> None:
    """Lines keep their order, gzip or not; empty ones do not count."""
    text = '{"value": {"op": 1}}\n\nbroken\n{"value": {"op": 2}}\n'
    path = tmp_path / "events.jsonl"
    path.write_bytes(gzip.compress(text.encode()) if is_gzip else text.encode())
    messages = read_messages(path, first_position=10)
    positions = [10, 11, 12]
    assert positions == [message.position for message in messages]
    (fault,) = [message for message in messages if isinstance(message, FaultyEvent)]
    assert fault.text == "broken"


def test_octets_of_a_topic_are_read() -> None:
    """Kafka hands out octets; null and nothing are tombstones; other converters than JSON's are refused.

    Programs on the way add headers of any octets, such as the identifier of a schema.
    """
    headers = {"h": b"x", "k": b'{"id":2}', "n": None, "schema": b"\x01\xff"}
    raw = RawMessage("t", b'{"id":1}', b'{"op":"c"}', headers, 3, 9, 5)
    message = parse_raw(raw)
    assert isinstance(message, Message)
    expected = {"h": "x", "k": {"id": 2}, "n": None, "schema": "\x01\\xff"}
    assert expected == message.headers
    place = (3, 9, 5)
    assert place == (message.partition, message.offset, message.timestamp_micros)
    for value in (None, b""):
        tombstone = parse_raw(RawMessage("t", b"{}", value))
        assert isinstance(tombstone, Message)
        assert tombstone.value is None
    for value in (b"\x00\x00\x00\x00\x01abc", b"\xff", b"no json"):
        fault = parse_raw(RawMessage("t", None, value))
        assert isinstance(fault, FaultyEvent)
        fault.text.encode()
    fault = parse_raw(RawMessage("t", b"\x00\x00\x00\x00\x01\xe4", b"{}"))
    assert isinstance(fault, FaultyEvent)
    assert "use the JSON converter for keys" in fault.reason


def test_schema_blocks_are_taken_off() -> None:
    """With schema blocks a part is an object of schema and payload."""
    part = {"schema": {"type": "struct"}, "payload": {"id": 1}}
    expected = {"id": 1}
    assert expected == payload_of(part)
    assert payload_of(expected) == expected
    assert part_of(expected)[1] is None
    assert part_of(part)[1] == part["schema"]


def test_columns_called_as_a_block_are_a_key() -> None:
    """A schema block is an object, or null where the converter knows no schema; a text is a column."""
    row = {"schema": "s", "payload": "p"}
    assert row == payload_of(row)
    assert part_of(row)[1] is None
    bare = {"schema": None, "payload": {"id": 1}}
    assert bare["payload"] == payload_of(bare)


def test_equal_schema_blocks_are_one_object() -> None:
    """A schema block is parsed once for all messages that have it; the line is kept for quarantine."""
    part = '{"schema":{"fields":[{"field":"id"}]},"payload":'
    line = f'{{"topic":"t","key":{part}{{"id":1}}}},"value":{part}null}}}}'
    first, second = parse_line(line.encode(), 0), parse_line(line.encode(), 1)
    assert isinstance(first, Message)
    assert isinstance(second, Message)
    assert line == first.text
    assert first.value["schema"] is second.value["schema"] is first.key["schema"]
    assert part_of(first.key)[0] == {"id": 1}
    assert first.key["schema"].fields == Fields([{"field": "id"}])


@pytest.mark.parametrize("space", ["\u00a0", "\x0b", "\u2028", "\r"])
@pytest.mark.parametrize("part", ['{"id":1}', '{"schema":{"fields":[]},"payload":{"id":1}}'])
def test_spaces_around_a_line_do_not_count(part: str, space: str) -> None:
    """Whether it has schema blocks or not."""
    message = parse_line(f'{space}{{"topic":"t","key":{part},"value":{part}}}{space}'.encode(), 0)
    assert isinstance(message, Message), message
    assert payload_of(message.value) == payload_of(message.key) == {"id": 1}
