"""Rows that Arrow can hold, and what stands for the others."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest

from cdc_platform.model.base.schemas import RAW_EVENT_RECORDS
from cdc_platform.sources.event_columns import ChangeRow, to_batches
from cdc_platform.sources.sound_rows import safe_text, sound_batches

PLAIN = ChangeRow("token", 1, "event", "order", "transaction", "table", "file", 2, "{}", keys="{}")


def built(values: Sequence[Any]) -> pa.RecordBatch:
    """Return a batch of one column."""
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], names=["value"])


@pytest.mark.parametrize("bad", [(), (0,), (7,), (3, 4), range(8)])
def test_only_bad_rows_are_replaced(bad: Sequence[int]) -> None:
    """Wherever rows are that Arrow refuses, all others keep their values and the order."""
    rows: list[Any] = [None if place in bad else place for place in range(8)]
    sound = ["x" if row is None else row for row in rows]
    batches = sound_batches(built, sound, lambda _row, _error: None)
    assert rows == list(chain.from_iterable(batch.column(0).to_pylist() for batch in batches))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"new_values": "\ud800"}, "`new_values` has a text that is not Unicode"),
        ({"position": 2**63}, "`position` is a number beyond 64 bits"),
        ({"source_timestamp": 2**62}, "outside the years 1 to 9999"),
        ({"unavailable_columns": ("\ud800",)}, "`unavailable_columns` has a text that is not Unicode"),
        ({"fault": "its own \ud800", "text": "t"}, "its own \\ud800"),
        ({"fault": "long" * 1000, "metadata": "\udfff"}, "longlong"),
    ],
)
def test_a_fault_is_safe_and_short(changes: dict[str, Any], reason: str) -> None:
    """A fault has the place of its change, a reason of bounded length, and the values as text."""
    table = pa.Table.from_batches(to_batches(1, [PLAIN, PLAIN._replace(**changes), PLAIN]))
    assert table.schema == RAW_EVENT_RECORDS
    first, fault, last = table.to_pylist()
    assert first == last
    assert first["event"]["fault"] is None
    assert reason in fault["event"]["fault"]
    assert len(fault["event"]["fault"]) < 1200
    assert (fault["event"]["text"] == "t") or '"table_name": "table"' in fault["event"]["text"]
    assert (
        fault["record_sequence"],
        fault["server_transaction_id"],
        fault["record_order"],
    ) == ("event", "transaction", "order")


def test_long_names_stay_different() -> None:
    """Texts that share a long beginning are still two."""
    assert safe_text("x" * 2000 + "a") != safe_text("x" * 2000 + "b")
