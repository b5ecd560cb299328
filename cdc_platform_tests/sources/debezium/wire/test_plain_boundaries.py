"""Boundaries of transactions that are parsed into their types, and those that are parsed as any message."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.debezium.wire.flattened_messages import read_content
from cdc_platform.sources.debezium.wire.message_contents import TransactionBegin, TransactionEnd
from cdc_platform.sources.debezium.wire.messages import Content, RawMessage, parse_message
from cdc_platform.sources.debezium.wire.plain_boundaries import plain_boundary

ID = "571:53195832"
END = {
    "status": "END",
    "id": ID,
    "event_count": 2,
    "data_collections": [{"data_collection": "s.a", "event_count": 2}],
    "ts_ms": 5,
}
NUMBERS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(2**63, 2**70), st.just("2"))
COUNTS = st.lists(st.fixed_dictionaries({"data_collection": st.text(), "event_count": NUMBERS}), max_size=2)
BOUNDARIES = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["BEGIN", "END", "begin", None]),
        "id": st.sampled_from([ID, "7", "", 7, None]),
    },
    optional={
        "event_count": NUMBERS,
        "data_collections": st.one_of(st.none(), COUNTS),
        "ts_ms": NUMBERS,
        "ts_us": NUMBERS,
        "ts_ns": NUMBERS,
        "more": NUMBERS,
    },
)


def messages_of(value: Any, key: bytes | None = b'{"id":"571"}') -> list[Content]:
    """Return a value as a line, and as a message."""
    text = json.dumps(value, separators=(",", ":"))
    line = json.dumps({"topic": "t", "key": {"id": ID}, "value": value}).encode()
    return [line, RawMessage("t", key, text.encode(), {"h": b"1"}, 0, 9, 5, 9)]


@given(value=BOUNDARIES)
def test_both_ways_of_parsing_agree(value: dict[str, Any]) -> None:
    """Where a boundary is parsed into its types, its content is that of any other message."""
    for sent in messages_of(value):
        plain = plain_boundary(sent)
        if plain is not None:
            message = parse_message(sent, 3)
            assert not isinstance(message, FaultyEvent)
            assert read_content(message) == plain


@pytest.mark.parametrize("number", [0, 1])
def test_usual_boundaries_are_parsed_into_their_types(number: int) -> None:
    """Beginnings and ends as the connector sends them take the quick way, in lines and in messages."""
    begin = {"status": "BEGIN", "id": ID, "event_count": None, "data_collections": None, "ts_ms": 5}
    assert TransactionBegin("571", 5000) == plain_boundary(messages_of(begin)[number])
    assert TransactionEnd("571", 2, 53195832) == plain_boundary(messages_of(END)[number])


@pytest.mark.parametrize(
    "value", [None, {}, "status", {"op": "c", "after": {"status": "END"}}, {**END, "__op": "c"}]
)
def test_other_messages_are_none(value: Any) -> None:
    """Changes of rows with such columns, flattened or not, are no boundaries."""
    assert [plain_boundary(sent) for sent in messages_of(value)] == [None, None]


def test_text_that_is_not_utf_8_is_none() -> None:
    """Such a message becomes a fault, which the other way of parsing reports."""
    assert plain_boundary(messages_of(END, b"\xff")[1]) is None
    assert plain_boundary(messages_of(END)[0].replace(b"s.a", b"\xff")) is None  # type: ignore[union-attr]  # a line
