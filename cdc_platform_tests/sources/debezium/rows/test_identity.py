"""Replica identities: how events show them, and how long a table keeps a recognised one."""

from itertools import pairwise
from typing import Any, Final

import pytest

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform_tests.sources.debezium.written_events import (
    TABLE,
    decode_all,
    envelope,
    line,
    only_event,
    only_fault,
    settings_with,
)

POINT: Final = {"x": 0.0, "y": 0.0, "wkb": "AQEAAAAAAAAAAAAAAAAAAAAAAAAA", "srid": None}
COLUMNS: Final = {TABLE: {"id": "integer", "n": "integer"}}


def in_block(value: dict[str, Any], *fields: dict[str, Any]) -> dict[str, Any]:
    """Return a value with the schema block of its fields, in addition to a key `id`."""
    fields_of_row = [{"field": "id", "type": "int32", "optional": False}, *fields]
    return {"schema": {"fields": [{"field": "after", "fields": fields_of_row}]}, "payload": value}


def deleted(key: int, **row: Any) -> str:
    """Return the line of a delete whose row before has more than the key."""
    return line(envelope("d", before={"id": key, **row}), {"id": key})


def kinds_of(*lines: str) -> list[type]:
    """Return which lines are changes, and which are refused."""
    return [type(event) for event in decode_all(*lines, columns=COLUMNS)]


@pytest.mark.parametrize(
    ("declared", "zero"),
    [("numeric", {"scale": 0, "value": "AA=="}), ("timetz", "00:00:00Z"), ("point", POINT), ("text", "")],
)
def test_the_row_of_key_0_is_deleted(declared: str, zero: Any) -> None:
    """Under DEFAULT the previous row has zeros outside its key, which do not show an index."""
    columns = {TABLE: {"id": "integer", "n": declared}}
    assert only_event(deleted(0, n=zero), columns=columns).mod_type is ModType.DELETE


def test_a_default_is_no_content() -> None:
    """A NOT NULL column with a DEFAULT has its default in the previous row, as in the schema block."""
    field = {"field": "n", "type": "string", "optional": False, "default": "new"}
    gone = in_block(envelope("d", before={"id": 0, "n": "new"}), field)
    assert only_event(line(gone, {"id": 0}), columns={}).mod_type is ModType.DELETE
    delete = in_block(envelope("d", before={"id": 0, "n": "old"}), field)
    assert "REPLICA IDENTITY" in only_fault(line(delete, {"id": 0}), columns={}).reason


UPDATE: Final = line(envelope("u", after={"id": 1, "n": 6}), {"id": 1})
UNUSABLE: Final = deleted(0, n=5)


def test_an_unusable_identity_is_refused_until_a_snapshot() -> None:
    """The advice is to take another identity and a snapshot, which ends what was known of the old one."""
    row = line(envelope("r", after={"id": 1, "n": 5}, source={"snapshot": "last"}), {"id": 1})
    expected = [FaultyEvent, FaultyEvent, SourceEvent, SourceEvent]
    assert expected == kinds_of(UNUSABLE, UPDATE, row, UPDATE)
    assert [FaultyEvent, SourceEvent, FaultyEvent] == kinds_of(UNUSABLE, row, UNUSABLE)


def test_a_deletion_that_names_its_row_shows_a_usable_identity() -> None:
    """Under an index identity every key is a placeholder, so a real key shows a usable identity."""
    expected = [FaultyEvent, SourceEvent, SourceEvent]
    assert expected == kinds_of(UNUSABLE, deleted(1, n=None), UPDATE)


WIDE: Final[dict[str, str]] = {
    "id": "integer",
    "tenant": "integer",
    "n": "integer",
    "huge": "numeric",
    "doc": "xml",
}
PARTLY: Final[dict[str, Any]] = {"id": 1, "tenant": 5, "n": None, "huge": None, "doc": None}


def shown_by(before: dict[str, Any], after: dict[str, Any], *fields: dict[str, Any]) -> str | None:
    """Return the previous row of an update, or the reason of its refusal."""
    value = envelope("u", before=before, after=after)
    text = line(in_block(value, *fields) if fields else value, {"id": 1})
    (decoded,) = decode_all(text, columns={} if fields else {TABLE: WIDE})
    return decoded.reason if isinstance(decoded, FaultyEvent) else decoded.old_values  # type: ignore[union-attr]


def test_an_index_with_the_key_and_more_is_not_full() -> None:
    """Only the index's columns are sent of the previous row; null elsewhere does not mean a large value."""
    assert "null_policies" in str(shown_by(PARTLY, {**PARTLY, "tenant": 6}))
    zeros = {**PARTLY, "n": 0}  # a column that is NOT NULL
    assert shown_by(zeros, {**PARTLY, "tenant": 6, "n": 3, "huge": {"scale": 0, "value": "AQ=="}}) is None


def test_what_no_index_can_have_shows_full() -> None:
    """An index is over columns that are NOT NULL and can be compared; a row without a gap needs no index."""
    assert "null" in str(shown_by({**PARTLY, "doc": "<a/>"}, {**PARTLY, "doc": "<b/>"}))
    assert "null" in str(shown_by({**PARTLY, "n": 3}, {**PARTLY, "n": None}))
    whole = {**PARTLY, "n": 3, "huge": {"scale": 0, "value": "AQ=="}, "doc": "<a/>"}
    assert '"tenant":5' in str(shown_by(whole, {**whole, "tenant": 6}))


def test_a_block_shows_which_columns_an_index_may_have() -> None:
    """A column that may be NULL is in no replica identity but FULL, unless it seems to have its default."""
    tenant = {"field": "tenant", "type": "int32", "optional": False}
    before = {"id": 1, "tenant": 5, "n": 7, "xs": None}
    samples = {"field": "xs", "type": "array", "optional": True, "items": {"type": "int16"}}
    for default, expected in ((None, '"tenant":5'), (7, "null_policies")):
        n = {"field": "n", "type": "int32", "optional": True, "default": default}
        assert expected in str(shown_by(before, {**before, "tenant": 6}, tenant, n, samples))


def test_full_that_was_given_up_for_an_index_is_trusted_no_more() -> None:
    """A column that an index over the key leaves out follows its policy until FULL shows again."""
    whole = {"id": 1, "tenant": 5, "n": 3, "huge": {"scale": 0, "value": "AQ=="}, "doc": "<a/>"}
    partial = {**whole, "huge": None}
    updates = [
        (whole, {**whole, "n": 4}),
        (partial, {**partial, "tenant": 6}),  # NULL, as under FULL
        (PARTLY, {**partial, "tenant": 7}),
        (PARTLY, {**partial, "tenant": 8}),
        (whole, {**whole, "n": 5}),
    ]
    lines = [line(envelope("u", before=before, after=after), {"id": 1}) for before, after in updates]
    kinds = [type(event) for event in decode_all(*lines, columns={TABLE: WIDE})]
    assert [SourceEvent, SourceEvent, FaultyEvent, FaultyEvent, SourceEvent] == kinds


NARROW: Final = {TABLE: {"id": "integer", "n": "integer", "note": "text"}}
"""Columns of which NULL always is NULL."""


def test_zeros_before_an_update_do_not_end_full() -> None:
    """Where NULL is NULL, only an update that looks as under an index counts as one, and FULL stays known."""
    rows = [{"id": 1, "n": number, "note": note} for number, note in ((1, "a"), (0, "b"), (2, "c"))]
    lines = [line(envelope("u", before=before, after=after), {"id": 1}) for before, after in pairwise(rows)]
    decoder = Decoder(settings_with(columns=NARROW))
    events = [event for event in decoder.decode_lines(lines) if isinstance(event, SourceEvent)]

    assert [event.old_values for event in events] == ['{"n":1,"note":"a"}', None]
    assert {TABLE} == decoder.state.full


def test_an_update_with_another_key_before_ends_full() -> None:
    """Under an index without the key, which then is invented, no delete is taken for one under FULL."""
    updates = [
        ({"id": 1, "n": 1, "note": "a"}, {"id": 1, "n": 1, "note": "b"}),
        ({"id": 0, "n": 1, "note": None}, {"id": 1, "n": 2, "note": "b"}),
    ]
    lines = [line(envelope("u", before=before, after=after), {"id": 1}) for before, after in updates]
    lines.append(line(envelope("d", before={"id": 0, "n": 2, "note": None}), {"id": 0}))

    assert isinstance(decode_all(*lines, columns=NARROW)[-1], FaultyEvent)


def test_a_declared_full_stays() -> None:
    """Whatever the events of a table in `full_identity` look like, its rows before updates are whole."""
    zeros = {**PARTLY, "n": 0}
    text = line(envelope("u", before=zeros, after={**PARTLY, "tenant": 6, "n": 3}), {"id": 1})
    options: dict[str, Any] = {"columns": {TABLE: WIDE}, "full_identity": (TABLE,)}
    events = [event for event in decode_all(text, text, **options) if isinstance(event, SourceEvent)]

    assert [event.old_values for event in events] == ['{"tenant":5,"n":0,"huge":null,"doc":null}'] * 2
