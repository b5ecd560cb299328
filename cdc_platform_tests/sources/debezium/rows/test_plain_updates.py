"""Plain updates are decoded as all events are, with fewer questions."""

import gzip
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.rows.plain_updates import PlainUpdates
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER
from cdc_platform.sources.debezium.settings.policies import NullPolicy, SnapshotPolicy
from cdc_platform_tests.sources.debezium.captures_read import GOLDEN
from cdc_platform_tests.sources.debezium.written_events import COLUMNS, TABLE, envelope, line, settings_with
from cdc_platform_tests.strategies import share_of_profile

OTHER: Final = "public.items"
SETTINGS: Final[dict[str, Any]] = {
    "columns": {**COLUMNS, OTHER: COLUMNS[TABLE]},
    "null_policies": {"smallint[]": NullPolicy.NULL},
}


WHOLE: Final[dict[str, Any]] = {"id": 1, "n": 1, "big": "x", "xs": [1]}


ODD: Final[tuple[dict[str, Any], ...]] = (
    *({"row": {"n": value}} for value in (None, 2, "no number")),
    *({"row": {"big": value}} for value in (None, "", DEFAULT_PLACEHOLDER)),
    *({"key": key} for key in (None, {"id": 1, "n": 1})),
    *({"source": {"sequence": value}} for value in (None, '[null,"3"]', "[1]")),
    *({"source": {"ts_ms": value}} for value in (None, 2_000_000_000_000)),
    {"source": {"table": "items"}},
    {"source": {"version": "1.9.0.Final"}},
    {"source": {"snapshot": "true"}},
    *({"transaction": {"id": "7:1", "total_order": order}} for order in (2, 3, 4) * 4),
    {"headers": {"__debezium.context.runId": "r"}},
)
"""What makes an event another one than a plain one of the table."""


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Draw the line of an event: about half are plain updates of one table, some have something odd."""
    op = draw(st.sampled_from("uuuuuuuUUccdr"))
    odd = draw(st.sampled_from([{}] * len(ODD) + [*ODD]))
    lsn = draw(st.integers(1, 4))
    source = {"lsn": lsn, "sequence": f'["1","{lsn}"]', **odd.get("source", {})}
    key = odd.get("key", {"id": 1})
    if op == "r":
        source["snapshot"] = draw(st.sampled_from(["first", "true", "last", "incremental"]))
    before = (
        draw(st.sampled_from([WHOLE, {**WHOLE, "big": None}, {**WHOLE, "id": 0}])) if op in "Ud" else None
    )
    if op == "d" and before is not None and "key" not in odd:
        key = {"id": before["id"]}
    after = None if op == "d" else {**WHOLE, **odd.get("row", {})}
    value = envelope(
        op.lower(), source=source, before=before, after=after, transaction=odd.get("transaction")
    )
    return line(value, key, headers=odd.get("headers"))


def decode(texts: list[str], **options: Any) -> tuple[object, ...]:
    """Return the events of lines, and the decoder's final knowledge, uses and open values."""
    decoder = Decoder(settings_with(**{**SETTINGS, **options}))
    decoded = list(decoder.decode_lines(texts))
    return decoded, decoder.state.to_json(), asdict(decoder.state.use), list(decoder.rows.unpaired)


@share_of_profile(3)
@given(
    texts=st.lists(lines(), min_size=3, max_size=12),
    options=st.fixed_dictionaries(
        {},
        optional={
            "snapshots": st.sampled_from(list(SnapshotPolicy)),
            "full_identity": st.just((TABLE,)),
            "has_transaction_topic": st.booleans(),
        },
    ),
)
def test_a_plain_update_is_decoded_as_one_of_which_everything_is_asked(
    texts: list[str], options: dict[str, Any]
) -> None:
    """Changes, faults, state and its use are the same as where no form is known."""
    _check_same(texts, options)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.jsonl.gz")), ids=lambda path: path.name)
def test_plain_updates_of_captures_are_decoded_alike(path: Path) -> None:
    """The same holds for the messages of a real connector, each capture twice in one stream."""
    with gzip.open(path, "rt", encoding="utf-8") as opened:
        texts = [text for text in opened if text.strip()]
    _check_same(texts * 2, {"columns": {}, "null_policies": {"*": NullPolicy.NULL}})


def _check_same(texts: list[str], options: dict[str, Any]) -> None:
    with patch.object(PlainUpdates, "learn"):
        expected = decode(texts, **options)

    assert expected == decode(texts, **options)


@pytest.mark.parametrize(
    ("rest", "decodings"),
    [({}, 1), ({"before": {"id": 1, "n": 1, "big": "a", "xs": [1]}}, 4), ({"source": {"version": "1.9"}}, 2)],
)
def test_what_is_known_of_a_form_is_not_asked_again(rest: dict[str, Any], decodings: int) -> None:
    """Of four equal updates the first one is asked everything, and each that shows more than a plain one."""
    plain = envelope("u", after={"id": 1, "n": 1, "big": "a", "xs": [1]})
    other = envelope("u", after=plain["after"], **json.loads(json.dumps(rest)))
    with patch.object(Decoder, "_decode_row", autospec=True, side_effect=Decoder._decode_row) as decode_row:  # noqa: SLF001  counted where it is asked
        decode([line(plain, {"id": 1}), *(line(other, {"id": 1}) for _ in range(3))])

    assert decodings == decode_row.call_count
