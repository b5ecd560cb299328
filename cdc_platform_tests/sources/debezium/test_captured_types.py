"""Every type under every setting of a real connector: what it sends becomes what the database has."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import pytest

from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.debezium.settings.connector import (
    BinaryMode,
    ConnectorModes,
    DecimalMode,
    HstoreMode,
    IntervalMode,
    NullPolicy,
    TimeMode,
)
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform_tests.sources.debezium.captures_read import (
    decode,
    events_in,
    faults_in,
    settings_for,
    truth_of,
)
from cdc_platform_tests.sources.debezium.postgres_texts import canonical

SHAPES: Final = "public.shapes"
TYPES: Final = "public.types"
MODES: Final[Mapping[str, ConnectorModes]] = {
    # a capture: how its connector was set up
    "types_default": ConnectorModes(),
    "types_default_schema": ConnectorModes(),
    "types_binary_base64": ConnectorModes(binary=BinaryMode.BASE64),
    "types_binary_base64_url_safe": ConnectorModes(binary=BinaryMode.BASE64_URL_SAFE),
    "types_binary_hex": ConnectorModes(binary=BinaryMode.HEX),
    "types_decimal_double": ConnectorModes(decimals=DecimalMode.DOUBLE),
    "types_decimal_string": ConnectorModes(decimals=DecimalMode.STRING),
    "types_hstore_map": ConnectorModes(hstore=HstoreMode.MAP),
    "types_identity_full": ConnectorModes(),
    "types_interval_string": ConnectorModes(intervals=IntervalMode.STRING),
    "types_placeholder": ConnectorModes(placeholder="NOPE"),
    "types_placeholder_hex": ConnectorModes(placeholder="hex:FF00"),
    "types_time_adaptive_microseconds": ConnectorModes(times=TimeMode.ADAPTIVE_TIME_MICROSECONDS),
    "types_time_connect": ConnectorModes(times=TimeMode.CONNECT),
    "types_time_isostring": ConnectorModes(times=TimeMode.ISOSTRING),
    "types_time_microseconds": ConnectorModes(times=TimeMode.MICROSECONDS),
    "types_time_nanoseconds": ConnectorModes(times=TimeMode.NANOSECONDS),
    "types_unknown_types": ConnectorModes(),
}
NUMBERED: Final = frozenset({3, 13})
LOST: Final[Mapping[str, frozenset[int]]] = {
    # a column whose value the connector loses under most settings: in which rows
    "c_date": frozenset({2, 3, 13}),  # infinity in two ways; before 1582 the snapshot is ten days late
    "c_int4_array": NUMBERED,  # two dimensions
    "c_mood_array": frozenset({1, 11}),  # an array of an enum that has a null
    "c_numeric": frozenset({2, 12}),  # NaN
    "c_numeric_array": NUMBERED,  # NaN
}
LOST_BY: Final[Mapping[str, Mapping[str, frozenset[int]]]] = {
    # what is lost otherwise under the settings of one capture
    "types_decimal_double": {
        "c_money": frozenset({2, 12}),
        "c_numeric": NUMBERED,
        "c_numeric_50_10": frozenset({2, 12}),
    },
    "types_decimal_string": {"c_numeric": frozenset()},
    "types_time_connect": dict.fromkeys(("c_time", "c_timestamp", "c_timestamp_array"), frozenset({1, 11})),
    "types_time_nanoseconds": {"c_timestamp": frozenset({2, 12}), "c_timestamp_3": NUMBERED},  # far years
    "types_time_isostring": {"c_time": NUMBERED, "c_timestamp": NUMBERED},  # 24:00, infinity
}
ENDLESS: Final = ("c_date", "c_timestamp", "c_timestamptz")
"""Columns with values that the lake's own types cannot say, so they are kept as texts."""
OTHERWISE: Final = ("c_interval", "c_point", "c_timetz", "doubled", "c_box")
"""Columns that are compared in separate tests: the database says them otherwise, or they are not sent."""


def settings_of(name: str) -> DebeziumSettings:
    """Return the settings for a capture, with the choices that its events ask for."""
    tables = truth_of("types_default")
    columns = {table: dict(truth.types) for table, truth in tables.items()}
    for column in ENDLESS:
        columns[TYPES][column] += " as text"
    return settings_for(
        tables,
        connector=MODES[name],
        columns=columns,
        ignored_columns={SHAPES: ("c_text_array_array",)},
        null_policies={"*": NullPolicy.UNAVAILABLE},
    )


def values_of(event: SourceEvent) -> dict[str, Any]:
    """Return the values after a change."""
    values: dict[str, Any] = json.loads(event.new_values or "{}")
    return values


PLAIN: Final[Mapping[str, Callable[[Any], Any]]] = {
    # what the database says more of a value than the connector does
    "bit(1)": lambda text: text == "1",
    "inet": lambda text: str(text).removesuffix("/32").removesuffix("/128"),
}
LESS: Final[Mapping[str, Callable[[Any], Any]]] = {
    # what the connector says more: blanks after a value that the database has without
    "character(6)": lambda text: text.rstrip(),
}


def as_it_is(value: Any) -> Any:
    """Return the value."""
    return value


def is_same(type_name: str, expected: Any, value: Any) -> bool:
    """Return whether a value is the database's; zeros after a decimal's last digit are not a difference."""
    if isinstance(expected, list) and isinstance(value, list) and len(expected) == len(value):
        return all(is_same(type_name[:-2], *pair) for pair in zip(expected, value, strict=True))
    if expected is None or value is None:
        return expected is value
    if type_name.startswith(("numeric", "money")):
        return Decimal(expected).compare(Decimal(value)) == 0 or expected == value
    plain: Callable[[Any], Any] = PLAIN.get(type_name, as_it_is)
    less: Callable[[Any], Any] = LESS.get(type_name, as_it_is)
    return repr(plain(expected)) == repr(less(value))


def differing(name: str) -> dict[str, set[int]]:
    """Return the columns that differ from the database, and in which rows."""
    truth = truth_of("types_default")[TYPES]
    events = {
        json.loads(event.keys)["id"]: event
        for event in events_in(decode(name, settings_of(name)))
        if event.table == TYPES
    }
    wrong: dict[str, set[int]] = {}
    for row in truth.rows:
        number = int(row["id"] or "")
        values = values_of(events[number])
        for column, type_name in truth.types.items():
            if column == "id" or column in OTHERWISE:
                continue
            expected = canonical(type_name, row[column])
            if column not in values or not is_same(type_name, expected, values[column]):
                wrong.setdefault(column, set()).add(number)
    return wrong


@pytest.mark.parametrize("name", MODES)
def test_every_value_is_the_database_s(name: str) -> None:
    """Values of snapshots and of the stream are those of the database, but for a list of known losses."""
    expected = {column: rows for column, rows in {**LOST, **LOST_BY.get(name, {})}.items() if rows}
    assert expected == differing(name)


@pytest.mark.parametrize("name", MODES)
def test_every_shape_of_an_unavailable_value_is_known(name: str) -> None:
    """In an update that changes no large value, all of them are unavailable, in every encoding."""
    decoded = decode(name, settings_of(name))
    assert not faults_in(decoded)
    updates = [
        event for event in events_in(decoded) if event.table == SHAPES and event.mod_type is ModType.UPDATE
    ]
    assert updates
    for update in updates:
        sent = set(truth_of("types_default")[SHAPES].types) if name == "types_identity_full" else {"touched"}
        assert sent.issuperset(values_of(update))
        assert (name == "types_identity_full") is (not update.unavailable_columns)


def test_without_declared_types_no_null_is_taken_for_one() -> None:
    """The schema block alone says less than a type's name: a policy decides what it leaves open."""
    settings = replace(settings_of("types_default_schema"), columns={})
    updates = [
        event
        for event in events_in(decode("types_default_schema", settings))
        if event.table == SHAPES and event.mod_type is ModType.UPDATE
    ]
    assert updates
    expected = {"touched"}
    assert all(expected == set(values_of(update)) for update in updates)


def test_values_that_the_database_says_otherwise() -> None:
    """Intervals, points and times with a zone arrive in their own forms."""
    exact, rough = (
        {
            json.loads(event.keys)["id"]: values_of(event)
            for event in events_in(decode(name, settings_of(name)))
            if event.table == TYPES
        }
        for name in ("types_interval_string", "types_default")
    )
    assert [exact[row]["c_interval"] for row in (1, 2)] == ["P1Y2M3DT4H5M6.789S", "P0Y-1M0DT0H0M0S"]
    assert [rough[row]["c_interval"] for row in (1, 2, 3)] == ["PT37091106.789S", "PT-2629800S", "PT0S"]
    assert [rough[row]["c_timetz"] for row in (1, 3)] == ["07:04:56.789Z", "07:59:59.999999Z"]
    assert [json.loads(rough[2]["c_point"])[axis] for axis in "xy"] == [-0.5, 1e300]
    assert ["doubled" in rough[row] for row in (1, 11)] == [True, False]


@pytest.mark.parametrize("name", [name for name in MODES if "time" in name])
def test_intervals_are_the_same_in_every_mode_of_times(name: str) -> None:
    """They are microseconds in all of them."""
    rows = {
        json.loads(event.keys)["id"]: values_of(event)["c_interval"]
        for event in events_in(decode(name, settings_of(name)))
        if event.table == TYPES
    }
    assert [rows[row] for row in (1, 2, 3)] == ["PT37091106.789S", "PT-2629800S", "PT0S"]


def test_null_where_a_type_has_no_marker_waits_for_a_choice() -> None:
    """Without a policy for null, the update goes to quarantine; each policy has its result."""
    plain = settings_of("types_default")
    assert all(
        "null_policies" in fault.reason
        for fault in faults_in(decode("types_default", replace(plain, null_policies={})))
    )
    lossy = {"c_int2_array", "c_float8_array", "c_numeric", "c_varbit", "c_hstore_array"}
    for policy in (NullPolicy.NULL, NullPolicy.UNAVAILABLE):
        chosen = replace(plain, null_policies={"*": policy})
        for update in events_in(decode("types_default", chosen)):
            if update.mod_type is ModType.UPDATE and update.table == SHAPES:
                nulls = {name for name, value in values_of(update).items() if value is None}
                assert (lossy <= nulls) is (policy is NullPolicy.NULL)
                assert (lossy <= set(update.unavailable_columns)) is (policy is NullPolicy.UNAVAILABLE)


def test_a_stream_without_types_says_so() -> None:
    """Without schema block and without declared types every row is refused, with what to do."""
    decoded = decode("types_default", settings_for({}))
    assert not events_in(decoded)
    assert all("schemas.enable=true" in fault.reason for fault in faults_in(decoded))
