"""Values that nothing can hold: each is one fault, and the events around it arrive."""

from pathlib import Path
from typing import Final

import pytest

from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.debezium.settings.settings import FilesInput
from cdc_platform_tests.sources.debezium.cycles import Cycles, append
from cdc_platform_tests.sources.debezium.written_events import (
    COLUMNS,
    TABLE,
    decode_all,
    envelope,
    line,
    settings_with,
)
from cdc_platform_tests.support.debezium.connector import faults_of, keys_of
from cdc_platform_tests.support.debezium.odd_values import HALF, inserted

BEYOND: Final = 10**20


def with_number(number: str, line_text: str) -> str:
    """Return a line with a number, as it is written, in the place of the text `NUMBER`."""
    return line_text.replace('"NUMBER"', number)


BAD: Final = {
    "text": inserted(text=HALF),
    "number of another type": inserted(text=[HALF]),
    "schema": inserted(source={"schema": HALF}),
    "table": inserted(source={"table": HALF}),
    "snapshot": inserted(source={"snapshot": HALF}),
    "transaction": inserted(source={"txId": None}, transaction={"id": f"{HALF}:1", "total_order": 1}),
    "refused text": inserted(key=HALF),
    "moment in microseconds": inserted(source={"ts_us": BEYOND}),
    "moment in milliseconds": inserted(source={"ts_ms": BEYOND}),
    "moment beyond the years": inserted(source={"ts_us": 2**62}),
}
EXPONENTS: Final = ("1e99999999999999999999", "1e999999999", "1e999999", "-1e-99999999999999999999")
BAD_NUMBERS: Final = {
    "value": inserted(text="NUMBER"),
    "integer": inserted("NUMBER"),
    "transaction order": inserted(transaction={"id": "7:1", "total_order": "NUMBER"}),
    "position": inserted(source={"lsn": "NUMBER"}),
    "moment": inserted(source={"ts_us": "NUMBER"}),
    "offset": line(envelope("c", after={"id": 2}), {"id": 2}, offset="NUMBER"),
    "partition": line(envelope("c", after={"id": 2}), {"id": 2}, partition="NUMBER"),
    "timestamp": line(envelope("c", after={"id": 2}), {"id": 2}, timestamp="NUMBER"),
}


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("bad", BAD_NUMBERS.values(), ids=BAD_NUMBERS)
def test_an_exponent_costs_nothing(bad: str, exponent: str, tmp_path: Path) -> None:
    """A number that has more digits than there is memory is one fault, wherever it is."""
    test_a_value_that_nothing_can_hold_is_one_fault(with_number(exponent, bad), tmp_path)


@pytest.mark.parametrize(
    "kind", ["numeric", "numeric(10,2)", "double precision", "jsonb", "bigint", "numeric[]"]
)
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_an_exponent_is_refused_by_every_type(kind: str, exponent: str) -> None:
    """A value of few characters and many digits is a fault, and no infinity or NULL."""
    value = {"jsonb": {"a": "NUMBER"}, "numeric[]": ["NUMBER"]}.get(kind, "NUMBER")
    texts = [with_number(exponent, inserted(text=value)), inserted(text={"scale": exponent, "value": "AQ=="})]
    faults = decode_all(*texts, columns={TABLE: {**COLUMNS[TABLE], "big": kind}})
    assert all(isinstance(fault, FaultyEvent) for fault in faults[: 1 if kind == "jsonb" else 2])


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_value_that_nothing_can_hold_is_one_fault(bad: str, tmp_path: Path) -> None:
    """The bad event is a fault with a reason, and the good ones beside it are in the log."""
    columns = COLUMNS | {f"{HALF}.orders": COLUMNS[TABLE], f"public.{HALF}": COLUMNS[TABLE]}
    cycles = Cycles(settings_with(input=FilesInput(str(tmp_path)), columns=columns))
    append(tmp_path / "a.jsonl", [inserted(1), bad, inserted(3, source={"lsn": 501})])
    cycles.read()
    (fault,) = faults_of(cycles)
    assert fault
    cycles.log = [row for row in cycles.log if row["event"]["fault"] is None]
    assert keys_of(cycles) == [1, 3]
