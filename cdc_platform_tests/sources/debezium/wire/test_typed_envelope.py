"""Envelopes that are parsed by their types, compared with the same ones parsed freely."""

import gzip
import json
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.debezium.wire import messages, schema_blocks
from cdc_platform.sources.debezium.wire.contents import read_content
from cdc_platform.sources.debezium.wire.message_contents import DataEvent, MessageUnusable
from cdc_platform.sources.debezium.wire.messages import RawMessage, parse_line, parse_raw
from cdc_platform.sources.debezium.wire.schema_blocks import payload_of
from cdc_platform.sources.debezium.wire.typed_envelope import TypedEnvelope
from cdc_platform_tests.fuzzing.debezium import debezium_seeds
from cdc_platform_tests.fuzzing.mutations import changed, steps, written
from cdc_platform_tests.sources.debezium.captures_read import GOLDEN
from cdc_platform_tests.sources.debezium.written_events import envelope

Envelope = Any
SEEDS: Final = debezium_seeds()


def _outcome(message: messages.Message | FaultyEvent) -> Envelope:
    """Return the content of a message, or why it has none."""
    if isinstance(message, FaultyEvent):
        return message.reason
    try:
        content: Envelope = read_content(message)
    except MessageUnusable as error:
        content = str(error)
    except Exception as error:  # noqa: BLE001  whatever it is, both ways raise it
        content = repr(error)
    if isinstance(content, DataEvent):
        content = replace(content, message=replace(message, value=None, sent=""))
    return content


def _outcomes(line: str) -> tuple[Envelope, Envelope]:
    """Return the outcomes of a line, and of its key and value as Kafka hands them out."""
    fields = json.loads(line)
    parts = [fields.get(name) if isinstance(fields, dict) else None for name in ("key", "value")]
    key, value = (
        None if part is None else json.dumps(part, separators=(",", ":")).encode() for part in parts
    )
    return _outcome(parse_line(line.encode(), 3)), _outcome(parse_raw(RawMessage("t", key, value, offset=5)))


def _parse_freely(patched: pytest.MonkeyPatch) -> None:
    for module, name in ((messages, "typed_line"), (schema_blocks, "typed_envelope")):
        patched.setattr(module, name, lambda _text, **_blocks: None)


def _check_same(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = _outcomes(line)
    with monkeypatch.context() as patched:
        _parse_freely(patched)
        free = _outcomes(line)
    for plain, fast in zip(free, typed, strict=True):
        # A number that nothing can read is not read where nobody asks for it.
        is_beyond = isinstance(plain, str) and isinstance(fast, DataEvent) and "It has a number" in plain
        assert is_beyond or plain == fast


def test_captured_changes_are_parsed_by_their_types_and_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each captured change has the types, and the same content as without them."""
    typed = changes = 0
    for path in sorted((GOLDEN).glob("*.jsonl.gz")):
        if path.name.startswith("flat"):
            continue
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in (line.rstrip("\n") for line in lines):
                _check_same(line, monkeypatch)
                message = parse_line(line.encode(), 0)
                assert not isinstance(message, FaultyEvent)
                changes += isinstance(read_content(message), DataEvent)
                typed += isinstance(payload_of(message.value), TypedEnvelope)
    assert (changes, True) == (typed, changes > 400)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.sampled_from(SEEDS), steps())
def test_generated_changes_have_the_same_content(seed: Any, made: Any) -> None:
    """For any defect of an envelope, both ways find the same content, or the same fault."""
    line = written(changed(seed, made))
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return
    with pytest.MonkeyPatch.context() as monkeypatch:
        _check_same(line, monkeypatch)


BLOCK: Final = '{"type":"struct","fields":[{"field":"after","type":"struct","fields":[{"field":"id"}]}]}'
PAYLOAD: Final = json.dumps(envelope("u", after={"id": 1, "big": "schema"}), separators=(",", ":"))


@pytest.mark.parametrize("key", ['{"id":1}', f'{{"schema":{BLOCK},"payload":{{"id":1}}}}', "null"])
@pytest.mark.parametrize(
    "block",
    [
        *(BLOCK, "null", "5", "{}", "[]", "{", f'{{"n":{"1" * 5000}}}', '{"n":1e9999999999999999999}', "NaN"),
        BLOCK.replace("id", "\u00e4"),
        BLOCK.replace("id", "\\ud800"),
    ],
)
def test_lines_with_any_schema_block_have_the_same_content(
    block: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block that is none, or none that can be parsed, gives the same content or fault both ways."""
    for value in (f'{{"schema":{block},"payload":{PAYLOAD}}}', f'{{"payload":{PAYLOAD},"schema":{block}}}'):
        line = f'{{"topic":"t","key":{key},"value":{value}}}'
        typed = _outcome(parse_line(line.encode(), 3)), _outcome(parse_raw(RawMessage("t", key, value)))
        with monkeypatch.context() as patched:
            _parse_freely(patched)
            free = _outcome(parse_line(line.encode(), 3)), _outcome(parse_raw(RawMessage("t", key, value)))
        assert free == typed


def test_a_line_with_schema_blocks_is_parsed_at_once() -> None:
    """Its blocks are found in the octets, not parsed again; the octets are kept for quarantine."""
    part = f'{{"schema":{BLOCK},"payload":'
    line = f'{{"topic":"t","key":{part}{{"id":1}}}},"value":{part}{PAYLOAD}}}}}'.encode()
    first, second = parse_line(line, 0), parse_line(line, 1)
    assert isinstance(first, messages.Message)
    assert isinstance(second, messages.Message)
    assert (line, line.decode()) == (first.sent, first.text)
    assert first.value["schema"] is second.value["schema"] is first.key["schema"]
    content = read_content(first)
    assert isinstance(content, DataEvent)
    assert (content.fields, content.key) == ([{"field": "id"}], {"id": 1})


def test_equal_schema_blocks_are_one_object() -> None:
    """A schema block is parsed once for all messages that have it."""
    line = json.dumps(
        {"topic": "t", "key": None, "value": {"schema": {"fields": [{"field": "id"}]}, "payload": None}},
        separators=(",", ":"),
    )
    first, second = parse_line(line.encode(), 0), parse_line(line.encode(), 1)
    assert not isinstance(first, FaultyEvent)
    assert not isinstance(second, FaultyEvent)
    assert first.value["schema"] is second.value["schema"]
