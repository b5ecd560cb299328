"""Plain changes, decoded by column, give the same as if each event is decoded by itself."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.sources.debezium.rows.plain_changes import PlainChanges
from cdc_platform.sources.debezium.rows.plain_columns import plain_run
from cdc_platform.sources.debezium.settings.connector import (
    DEFAULT_PLACEHOLDER,
    NullPolicy,
    SnapshotPolicy,
    Strategy,
)
from cdc_platform.sources.debezium.wire.messages import RawMessage
from cdc_platform_tests.sources.debezium.captures_read import GOLDEN
from cdc_platform_tests.sources.debezium.rows.decoded_lines import (
    KEY_ALONE,
    OTHER,
    WHOLE,
    change,
    check_same,
    decode,
    message,
    scanned,
)
from cdc_platform_tests.sources.debezium.written_events import TABLE, envelope, line
from cdc_platform_tests.strategies import share_of_profile

BEFORE: Final[tuple[dict[str, Any], ...]] = (
    {"big": None},
    {"id": 0},
    {"big": "y", "xs": None},
    {"n": 0, "big": "y", "xs": None},
)
"""How rows before a change differ; in the last two, an index seems to have all columns with content."""
ODD: Final[tuple[dict[str, Any], ...]] = (
    *({"row": {"n": value}} for value in (None, 2, "no number")),
    *({"row": {"big": value}} for value in (None, "", DEFAULT_PLACEHOLDER)),
    *({"key": key} for key in (None, {"id": 1, "n": 1})),
    *({"source": {"sequence": value}} for value in (None, '[null,"3"]', "[1]", '["x","y"]')),
    *({"source": {"ts_ms": value}} for value in (None, 2_000_000_000_000)),
    {"source": {"table": "items"}},
    {"source": {"version": "1.9.0.Final"}},
    {"source": {"snapshot": "true"}},
    *({"transaction": {"id": "7:1", "total_order": order}} for order in (2, 3, 4, -1) * 4),
    *({"source": {"txId": transaction}} for transaction in (8, 8, 8, None)),
    *({"source": {"commit_lsn": position}} for position in (None, 0, 2)),
    {"headers": {"__debezium.context.runId": "r"}},
    *({"headers": {"__debezium.oldkey": key}} for key in ({"id": 2}, [2])),
)
"""Members by which an event differs from a plain change of the table."""


def boundaries() -> st.SearchStrategy[str]:
    """Return the strategy of the boundaries of two transactions."""
    statuses = st.sampled_from([("BEGIN", None), ("END", 1), ("END", 2), ("END", 3)])
    values = st.tuples(statuses, st.sampled_from([7, 8])).map(
        lambda drawn: {
            "status": drawn[0][0],
            "id": f"{drawn[1]}:9",
            "ts_ms": 5,
            "event_count": drawn[0][1],
            "data_collections": None,
        }
    )
    return values.map(lambda value: line(value, {"id": value["id"]}))


def with_blocks(texts: Sequence[str], kind: str = "int32") -> list[str]:
    """Return lines with schema blocks, by which the second column is of a kind."""
    parsed = [json.loads(text) for text in texts]
    for parts in parsed:
        fields = [{"type": "int32", "field": "id"}, {"type": kind, "field": "n", "optional": True}]
        parts["value"]["after"] = {name: parts["value"]["after"][name] for name in ("id", "n")}
        after = {"type": "struct", "fields": fields, "field": "after"}
        parts["value"] = {"schema": {"type": "struct", "fields": [after]}, "payload": parts["value"]}
        parts["key"] = {"schema": {"type": "struct", "fields": fields[:1]}, "payload": parts["key"]}
    return [json.dumps(parts, separators=(",", ":")) for parts in parsed]


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Draw the line of an event: about half are plain changes of one table, some have something odd."""
    op = draw(st.sampled_from("uuuuuuuUUccccdddrrr"))
    odd = draw(st.sampled_from([{}] * len(ODD) + [*ODD]))
    # Inserts and deletes share positions, of a statement or a key change, but not with updates.
    lsn = 2 * draw(st.integers(1, 3)) + (op in "uU")
    source = {"lsn": lsn, "sequence": f'["1","{lsn}"]', **odd.get("source", {})}
    key = odd.get("key", {"id": 1})
    if op == "r":
        source["snapshot"] = draw(st.sampled_from(["first", *["true"] * 4, "last", "incremental"]))
    before = (
        draw(st.sampled_from([WHOLE, *({**WHOLE, **row} for row in BEFORE), *[KEY_ALONE] * (op == "d")]))
        if op in "Ud"
        else None
    )
    if op == "d" and before is not None and "key" not in odd:
        key = {"id": before["id"]}
    after = None if op == "d" else {**WHOLE, **odd.get("row", {})}
    value = envelope(
        op.lower(), source=source, before=before, after=after, transaction=odd.get("transaction")
    )
    return line(value, key, headers=odd.get("headers"))


@share_of_profile(4)
@given(
    texts=st.lists(
        st.one_of(
            *[lines()] * 6,
            *[boundaries()] * 2,
            st.builds(scanned, st.sampled_from([TABLE, OTHER]), st.integers(-1, 1)),
        ),
        min_size=3,
        max_size=16,
    ),
    options=st.fixed_dictionaries(
        {},
        optional={
            "snapshots": st.sampled_from(list(SnapshotPolicy)),
            "full_identity": st.just((TABLE,)),
            "has_transaction_topic": st.booleans(),
            "is_one_stream": st.booleans(),
            "has_messages": st.booleans(),
            "strategy": st.sampled_from(list(Strategy)),
            "null_policies": st.just({}),
        },
    ),
)
def test_changes_by_column_are_decoded_as_all_events_are(texts: list[str], options: dict[str, Any]) -> None:
    """Rows, faults, transactions, state and its use are the same as where no form is known."""
    check_same(texts, options)


@pytest.mark.parametrize(("times", "has_transaction_topic"), [(1, False), (1, True), (2, True)])
@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.jsonl.gz")), ids=lambda path: path.name)
def test_plain_changes_of_captures_are_decoded_alike(
    path: Path, times: int, has_transaction_topic: bool
) -> None:
    """The same holds for the messages of a real connector, once and sent twice."""
    with gzip.open(path, "rt", encoding="utf-8") as opened:
        texts = [text for text in opened if text.strip()]
    options = {"has_transaction_topic": has_transaction_topic, "has_messages": has_transaction_topic}
    check_same(texts * times, {"columns": {}, "null_policies": {"*": NullPolicy.NULL}, **options})


OF_SNAPSHOT: Final = {"snapshot": "true", "sequence": '["1","3"]'}
DELETED: Final = {"__debezium.newkey": {"id": 2}}
LIKE_MARKER: Final = {"big": DEFAULT_PLACEHOLDER}
CASES: Final[dict[str, tuple[Sequence[str | RawMessage], dict[str, Any]]]] = {
    "another table was found empty": (
        [
            change("u", 3, source={"table": "items"}),
            *(change("u", lsn) for lsn in (5, 7)),
            scanned(OTHER, 1),
            *(change("u", lsn) for lsn in (9, 11)),
        ],
        {"snapshots": SnapshotPolicy.REPLACE},
    ),
    "commit at the position 0": ([change("u", lsn, source={"commit_lsn": 0}) for lsn in (5, 7)], {}),
    **{
        f"the sequence {sequence} of {op}": (
            [
                change("r", 3, source={**OF_SNAPSHOT, "snapshot": "first"}),
                change("r", 3, {"n": 2}, source=OF_SNAPSHOT),
                *(change("u", lsn) for lsn in (5, 7)),
                change(op, lsn, {"n": 3}, source={**source, "sequence": sequence}),
            ],
            {},
        )
        for op, lsn, source in (("r", 3, OF_SNAPSHOT), ("u", 9, {}))
        for sequence in ('["x","y"]', '["1"', '["1","99999999999999999999"]', '["1","\u0661"]', '["1",null]')
    },
    "an order that is none after half of a key change": (
        [
            change("c", 3, order=1),
            change("c", 5, order=2),
            change("d", 7, headers=DELETED, order=3),
            change("c", 7, order=-1),
        ],
        {},
    ),
    "an order that is none before half of a key change": (
        [
            change("c", 3, order=1),
            change("c", 5, order=10**10),
            change("d", 7, headers=DELETED, order=3),
        ],
        {},
    ),
    "the order of a row of a snapshot": (
        [
            change("r", 3, source={**OF_SNAPSHOT, "snapshot": "first"}),
            change("r", 3, {"n": 2}, source=OF_SNAPSHOT),
            change("c", 5, order=1),
            change("r", 3, {"n": 3}, source=OF_SNAPSHOT, order=5),
            change("c", 7, LIKE_MARKER, order=6),
        ],
        {},
    ),
    **{
        f"whole numbers of a real column{place}": (
            with_blocks([change("u", lsn) for lsn in (5, 7, 9)]),
            {"columns": {TABLE: {column: "real"}}},
        )
        for column, place in (("n", ""), ("id", " of the key"))
    },
    "a boolean of a real column": (
        with_blocks([change("u", lsn, {"n": value}) for lsn, value in ((5, None), (7, True))], "boolean"),
        {"columns": {TABLE: {"n": "real"}}},
    ),
    "a key with a block of its own": (
        [
            text.replace('"key": {"id": 1}', '"key": {"schema": {"fields": []}, "payload": {"id": 1}}')
            for text in (change("u", lsn) for lsn in (5, 7, 9))
        ],
        {},
    ),
    **{
        f"header {name} that is not UTF-8": (
            [
                message(change("u", lsn), lsn)._replace(headers=headers)
                for lsn, headers in enumerate((None, {name: b"\xff"}, {name: None}, {name: b"a"}))
            ],
            {},
        )
        for name in ("trace", "__debezium.context.runId")
    },
}
"""Messages and settings, by what is odd about them."""


@pytest.mark.parametrize("has_transaction_topic", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_odd_changes_are_decoded_as_all_events_are(case: str, *, has_transaction_topic: bool) -> None:
    """The same holds for what few streams have."""
    texts, options = CASES[case]
    check_same(texts, {**options, "has_transaction_topic": has_transaction_topic})


@pytest.mark.parametrize(("column", "values"), [("xs", ([1], None)), ("n", (1, "no number"))])
def test_single_changes_do_not_divide_the_others(column: str, values: Sequence[Any]) -> None:
    """Inserts with a null that may be an unsent value, or with an unusable value, are decoded singly."""
    texts = [change("c", 2 * place + 1, {column: values[place % 2]}) for place in range(64)]
    with patch(f"{PlainChanges.__module__}.plain_run", side_effect=plain_run) as run:
        check_same(texts, {"null_policies": {}})

    assert run.call_count == 2


@pytest.mark.parametrize("run_id", [5, True, ["r"], {"type": "string"}])
def test_a_header_of_a_file_need_not_be_a_text(run_id: Any) -> None:
    """Changes with a header of another type of JSON are decoded together, too."""
    headers = {"__debezium.context.runId": run_id}
    texts = [change("u", 2 * place + 1, headers=headers) for place in range(8)]
    with patch(f"{PlainChanges.__module__}.plain_run", side_effect=plain_run) as run:
        check_same(texts, {})

    assert run.call_count == 1


@pytest.mark.parametrize("bad", [0, 1, 6, 7])
@pytest.mark.parametrize("op", ["c", "u"])
def test_a_value_that_cannot_be_used_makes_no_other_change_a_fault(bad: int, op: str) -> None:
    """Of the changes that are decoded together, the one with such a value is a fault, and no other."""
    rows = [{**WHOLE, "n": "no number" if place == bad else place} for place in range(8)]
    rest = [{"source": {"lsn": place + 10, "sequence": f'["1","{place + 10}"]'}} for place in range(9)]
    texts = [line(envelope(op, after=WHOLE, **rest[8]), {"id": 1})]
    texts += [line(envelope(op, after=row, **of), {"id": 1}) for row, of in zip(rows, rest[:8], strict=True)]
    decoded, *_ = decode(texts)

    assert isinstance(decoded, list)
    assert [bad + 1] == [row["event"]["position"] for row in decoded if row["event"]["fault"]]
    assert len(texts) == len(decoded)
