"""Keys that do not arrive whole are refused, because two of them may be one in the lake."""

from typing import Any, Final

import pytest

from cdc_platform.sources.debezium.settings.connector import ConnectorModes, DecimalMode, TimeMode
from cdc_platform_tests.sources.debezium.written_events import TABLE, envelope, line, only_event, only_fault

PLAIN: Final = ConnectorModes()
CONNECT: Final = ConnectorModes(times=TimeMode.CONNECT)
DOUBLE: Final = ConnectorModes(decimals=DecimalMode.DOUBLE)
LOSSY: Final[list[tuple[str, ConnectorModes, Any, str]]] = [
    # declared type of the key, settings, a value as it arrives, what the reason names
    ("timestamp", CONNECT, 1_709_210_096_789, "time.precision.mode"),
    ("time(4)", CONNECT, 45_296_789, "time.precision.mode"),
    ("numeric", DOUBLE, 1.5, "decimal.handling.mode"),
    ("numeric(16,2)", DOUBLE, 1.5, "decimal.handling.mode"),
    ("bit varying(5)", PLAIN, "BQ==", "leading zeros"),
    ("name", PLAIN, "n", "snapshots"),
    ("money", DOUBLE, 1.5, "decimal.handling.mode"),
    ("timestamp[]", CONNECT, [1_709_210_096_789], "time.precision.mode"),
    ("time[]", PLAIN, [45_296_789_000], "digits of a second"),
    ("varbit(5)[]", PLAIN, ["BQ=="], "leading zeros"),
]
WHOLE: Final[list[tuple[str, ConnectorModes, Any]]] = [
    ("timestamp", PLAIN, 1_709_210_096_789_012),
    ("timestamp(3)", CONNECT, 1_709_210_096_789),
    ("timestamptz", CONNECT, "2024-02-29T12:34:56.789012Z"),
    ("numeric(15,2)", DOUBLE, 1.5),
    ("numeric", PLAIN, {"scale": 1, "value": "Dw=="}),
    ("bit(5)", PLAIN, "BQ=="),
    ("integer[]", PLAIN, [1]),
]


def inserted(key: Any, block: dict[str, Any] | None = None) -> str:
    """Return the line of a row whose key has one column."""
    event: dict[str, Any] = envelope("c", after={"id": key})
    if block is not None:
        event = {"schema": {"fields": [{"field": "after", "fields": [block]}]}, "payload": event}
    return line(event, {"id": key})


@pytest.mark.parametrize(("declared", "modes", "key", "named"), LOSSY)
def test_a_key_that_has_lost_something_is_refused(
    declared: str, modes: ConnectorModes, key: Any, named: str
) -> None:
    """Two rows could become one; the reason says what is lost, and what to do."""
    fault = only_fault(inserted(key), columns={TABLE: {"id": declared}}, connector=modes)
    assert fault.reason.startswith(f"The column `id` of `{TABLE}` is part of its key")
    assert named in fault.reason


@pytest.mark.parametrize(("declared", "modes", "key"), WHOLE)
def test_a_key_that_arrives_whole_is_a_key(declared: str, modes: ConnectorModes, key: Any) -> None:
    """The same types lose nothing with fewer digits, or under other settings."""
    assert only_event(inserted(key), columns={TABLE: {"id": declared}}, connector=modes).keys != "{}"


@pytest.mark.parametrize(("scale", "is_whole"), [("3", True), ("6", False), (None, False)])
def test_a_schema_block_shows_the_mode_and_the_digits(scale: str | None, *, is_whole: bool) -> None:
    """The settings of the platform need not repeat those of the connector."""
    propagated = {} if scale is None else {"__debezium.source.column.scale": scale}
    block = {
        "field": "id",
        "type": "int64",
        "name": "org.apache.kafka.connect.data.Timestamp",
        "optional": False,
        "parameters": {"__debezium.source.column.type": "TIMESTAMP", **propagated},
    }
    row = inserted(1_709_210_096_789, block)
    if is_whole:
        assert only_event(row, columns={}).keys == '{"id":"2024-02-29T12:34:56.789000"}'
    else:
        assert "time.precision.mode" in only_fault(row, columns={}).reason
