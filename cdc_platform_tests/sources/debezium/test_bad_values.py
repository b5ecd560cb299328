"""Values that nothing can hold: each is one fault, and the events around it arrive."""

from pathlib import Path

import pytest

from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform_tests.sources.debezium.cycles import Cycles, append
from cdc_platform_tests.sources.debezium.written_events import (
    COLUMNS,
    TABLE,
    decode_all,
    settings_with,
)
from cdc_platform_tests.support.debezium.connector import faults_of, keys_of
from cdc_platform_tests.support.hostile.debezium import BAD, BAD_NUMBERS, DECLARED, inserted
from cdc_platform_tests.support.hostile.values import EXPONENTS, NUMBER, Bad, written


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("bad", BAD_NUMBERS.values(), ids=BAD_NUMBERS)
def test_an_exponent_costs_nothing(bad: str, exponent: str, tmp_path: Path) -> None:
    """A number that has more digits than there is memory is one fault, wherever it is."""
    test_a_value_that_nothing_can_hold_is_one_fault(Bad(written(exponent, bad), ""), tmp_path)


@pytest.mark.parametrize(
    "kind", ["numeric", "numeric(10,2)", "double precision", "jsonb", "bigint", "numeric[]"]
)
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_an_exponent_is_refused_by_every_type(kind: str, exponent: str) -> None:
    """A value of few characters and many digits is a fault, and no infinity or NULL."""
    value = {"jsonb": {"a": NUMBER}, "numeric[]": [NUMBER]}.get(kind, NUMBER)
    texts = [written(exponent, inserted(text=value)), inserted(text={"scale": exponent, "value": "AQ=="})]
    faults = decode_all(*texts, columns={TABLE: {**COLUMNS[TABLE], "big": kind}})
    assert all(isinstance(fault, FaultyEvent) for fault in faults[: 1 if kind == "jsonb" else 2])


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_value_that_nothing_can_hold_is_one_fault(bad: Bad, tmp_path: Path) -> None:
    """The bad event is a fault with its reason, and the good ones next to it are in the log."""
    cycles = Cycles(settings_with(input=FilesInput(str(tmp_path)), columns=DECLARED))
    append(tmp_path / "a.jsonl", [inserted(1), bad.sent, inserted(3, source={"lsn": 501})])
    cycles.read()
    (fault,) = faults_of(cycles)
    assert bad.reason in fault
    cycles.log = [row for row in cycles.log if row["event"]["fault"] is None]
    assert keys_of(cycles) == [1, 3]
