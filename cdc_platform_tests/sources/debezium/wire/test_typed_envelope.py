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


def _check_same(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = _outcomes(line)
    with monkeypatch.context() as patched:
        for module, name in ((messages, "typed_line"), (schema_blocks, "typed_envelope")):
            patched.setattr(module, name, lambda _text: None)
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
