"""States of splits that were decoded side by side: joined where that made no difference, else refused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.rows.joined_states import joined_state
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER
from cdc_platform.sources.debezium.wire.messages import Arrival, parse_message
from cdc_platform_tests.sources.debezium.written_events import TABLE, envelope, line, settings_with

ROW: Final = {"id": 1, "n": 2, "big": "a"}
SNAPSHOT: Final = {"snapshot": "true", "lsn": 300, "sequence": None}
INSERT: Final = line(envelope("c", after=ROW), {"id": 1})
UNDER_FULL: Final = line(envelope("u", before=ROW, after={**ROW, "n": 3}), {"id": 1})
UNDER_DEFAULT: Final = line(envelope("u", after=ROW), {"id": 1})
READ: Final = line(envelope("r", after=ROW, source=SNAPSHOT), {"id": 1})
READ_AGAIN: Final = line(envelope("r", after=ROW, source={**SNAPSHOT, "lsn": 900}), {"id": 1})
FIRST_BEHIND: Final = line(envelope("c", after=ROW, source={"sequence": '[null,"500"]'}), {"id": 1})
OTHER_KEY: Final = line(envelope("c", after=ROW), {"n": 2})
FLAT: Final = {
    "__op": "c",
    "__source_schema": "public",
    "__source_table": "orders",
    "__source_lsn": 500,
    "__deleted": "false",
}
FLAT_DELETE: Final = line({**ROW, **FLAT, "__deleted": "true"}, {"id": 1})
DELETE: Final = line(envelope("d", before=ROW), {"id": 1})
DOUBTFUL: Final = line(envelope("c", after={**ROW, "big": DEFAULT_PLACEHOLDER}), {"id": 1})
TOMBSTONE: Final = line(None, {"id": 1})


def state_after(*lines: str, start: DecoderState | None = None, position: int = 0) -> DecoderState:
    """Return the state after lines, and what they used of the previous one."""
    state = DecoderState.from_json((start or DecoderState()).to_json())
    for _ in Decoder(settings_with(), state).decode_lines(lines, position):
        pass
    return state


def decoded(*lines: str) -> Decoder:
    """Return the decoder of lines, of which it decodes plain changes by column."""
    decoder = Decoder(settings_with(), DecoderState())
    for number, text in enumerate(lines):
        sent = text.encode()
        if not decoder.plain.take(Arrival(sent, "f", number, 0, number)):
            for _ in decoder.decode(parse_message(sent, number)):
                pass
    decoder.plain.finish()
    return decoder


def joined(*splits: tuple[str, ...], start: DecoderState | None = None) -> DecoderState | None:
    """Return the state behind splits that all began with the same one."""
    begun = start or DecoderState()
    state: DecoderState | None = state_after(*splits[0], start=begun)
    position = len(splits[0])
    for lines in splits[1:]:
        assert state is not None
        state = joined_state(state, begun, state_after(*lines, start=begun, position=position))
        position += len(lines)
    return state


@pytest.mark.parametrize(
    "splits",
    [
        ((INSERT,), (INSERT, UNDER_DEFAULT)),
        ((READ,), (READ,)),
        ((READ,), (INSERT,), (UNDER_DEFAULT,)),
        ((FLAT_DELETE, TOMBSTONE), (FLAT_DELETE, TOMBSTONE)),
        ((UNDER_FULL,), (TOMBSTONE,)),
        ((READ,), (READ, FIRST_BEHIND)),
        ((UNDER_FULL,), (UNDER_FULL, DELETE)),
        ((UNDER_FULL,), (INSERT, UNDER_FULL)),
        ((UNDER_FULL,), (INSERT,), (INSERT, UNDER_DEFAULT), (DELETE,)),
    ],
)
def test_independent_splits_are_joined(splits: tuple[tuple[str, ...], ...]) -> None:
    """The state is that of one decoder which has read all of them."""
    expected = state_after(*(text for lines in splits for text in lines))
    state = joined(*splits)
    assert state is not None
    assert expected.to_json() == state.to_json()


@pytest.mark.parametrize(
    "splits",
    [
        pytest.param(((UNDER_FULL,), (DELETE, UNDER_FULL)), id="FULL is shown by another split"),
        pytest.param(((UNDER_FULL,), (DOUBTFUL,)), id="a value that FULL would have sent"),
        pytest.param(((READ,), (FIRST_BEHIND,)), id="an ordering key depends on the snapshot"),
        pytest.param(((INSERT,), (OTHER_KEY,)), id="another key"),
        pytest.param(((READ,), (READ_AGAIN,)), id="another snapshot"),
        pytest.param(((FLAT_DELETE,), (TOMBSTONE,)), id="a tombstone without its delete"),
    ],
)
def test_splits_that_depend_on_others_are_decoded_again(splits: tuple[tuple[str, ...], ...]) -> None:
    """What another split shows would have given other events."""
    assert joined(*splits) is None


LEARNED: Final[dict[str, Callable[[DecoderState], Any]]] = {
    "owners": lambda state: replace(state, owners={TABLE: "other.orders"}),
    "keys": lambda state: replace(state, keys={TABLE: ["n"]}),
    "key_types": lambda state: replace(state, key_types={TABLE: {"id": "string"}}),
    "unusable": lambda state: replace(state, unusable={TABLE}),
    "full": lambda state: replace(state, full={TABLE}),
}


@pytest.mark.parametrize("change", LEARNED.values(), ids=LEARNED.keys())
def test_no_other_fact_is_taken_for_the_own(change: Callable[[DecoderState], DecoderState]) -> None:
    """Each fact that a split relies on is compared with the actual one."""
    end = state_after(INSERT, DELETE)
    assert joined_state(end, DecoderState(), end) is not None
    assert joined_state(change(state_after(INSERT)), DecoderState(), end) is None


def test_facts_of_other_tables_matter_to_nobody() -> None:
    """A split is judged by its own tables, and keeps what is known of the others."""
    before = replace(state_after(INSERT), full={"public.others"}, owners={"public.others": "public.others"})
    state = joined_state(before, DecoderState(), state_after(INSERT))
    assert state is not None
    assert state.full == {"public.others"}
    assert set(state.owners) == {"public.others", TABLE}


@pytest.mark.parametrize(("lsn", "is_joined"), [(301, True), (300, False), (299, False), (None, False)])
@pytest.mark.parametrize("is_ordered", [True, False])
def test_changes_after_the_first_snapshot_may_be_in_other_splits(
    lsn: int | None, *, is_joined: bool, is_ordered: bool
) -> None:
    """If their order is unknown, their positions say that the snapshot came first."""
    place = {"lsn": lsn, "sequence": '[null,"880"]'}
    changes = state_after(line(envelope("c", after=ROW, source=place), {"id": 1}))
    state = joined_state(changes, DecoderState(), state_after(READ), is_ordered=is_ordered)
    assert (is_joined and not is_ordered) is (state is not None)
    if state is not None:
        assert state_after(READ).snapshots.servers.keys() == state.snapshots.servers.keys()
        assert {(300, 300)} == {(each.first, each.newest) for each in state.snapshots.servers.values()}


def test_plain_changes_have_positions_too() -> None:
    """The lowest position is that of all changes, decoded one by one or by column."""
    places = [{"lsn": lsn, "sequence": f'["1","{lsn}"]'} for lsn in (900, 910, 700, 850)]
    decoder = decoded(*(line(envelope("u", after=ROW, source=place), {"id": 1}) for place in places))
    assert [len(run.keys) for run in decoder.plain.runs] == [3]
    assert list(decoder.state.use.lowest_changes.values()) == [700]


def test_plain_changes_depend_on_what_was_shown_before_them() -> None:
    """An insert that was collected before an update has shown FULL depends on the state before both."""
    first, second = (
        line(envelope("c", after={**ROW, "big": big}, source={"lsn": lsn}), {"id": 1})
        for big, lsn in (("a", 600), (DEFAULT_PLACEHOLDER, 700))
    )
    assert decoded(first, second, UNDER_FULL).state.use.doubtful == {TABLE}
    assert decoded(UNDER_FULL, first, second).state.use.doubtful == set()
