"""The shapes that a column may have, where a schema block has the type, or less than the type."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from cdc_platform.sources.debezium.settings.connector import BinaryMode, ConnectorModes, DecimalMode, TimeMode
from cdc_platform.sources.debezium.values.block_encodings import block_type
from cdc_platform.sources.debezium.values.detector import evidence_of
from cdc_platform.sources.debezium.values.encodings import declared_encoding
from cdc_platform.sources.debezium.values.postgres_types import PostgresType
from cdc_platform.sources.debezium.values.unavailable import Shape
from cdc_platform_tests.sources.debezium.written_events import TABLE, envelope, line, only_event, only_fault

NEW: Final = (3, 6, 3)
PLAIN: Final = ConnectorModes()
DOUBLES: Final = ConnectorModes(decimals=DecimalMode.DOUBLE)
OCTET_TEXTS: Final = ConnectorModes(binary=BinaryMode.BASE64)
ISO: Final = ConnectorModes(times=TimeMode.ISOSTRING)


def field_of(kind: str, name: str | None = None) -> dict[str, Any]:
    """Return a field of a schema block."""
    return {"field": "big", "optional": True, "type": kind, "name": name}


def list_of(kind: str, name: str | None = None) -> dict[str, Any]:
    """Return the field of an array in a schema block."""
    return {**field_of("array"), "items": field_of(kind, name)}


JSON: Final = "io.debezium.data.Json"
GEOMETRY: Final = field_of("struct", "io.debezium.data.geometry.Geometry")
ISO_DATES: Final = list_of("string", "io.debezium.time.IsoDate")
DAYS: Final = list_of("int32", "io.debezium.time.Date")
CONNECT_DATES: Final = list_of("int32", "org.apache.kafka.connect.data.Date")
VARIABLE: Final = field_of("struct", "io.debezium.data.VariableScaleDecimal")
CASES: Final[list[tuple[Mapping[str, Any], str | None, ConnectorModes, tuple[Shape, ...]]]] = [
    # type of the schema block, declared or propagated type, settings, shapes
    (list_of("int32"), "integer[]", PLAIN, (Shape.OCTET_LIST,)),
    (list_of("int32"), None, PLAIN, (Shape.OCTET_LIST, Shape.NULL)),
    (list_of("int32"), "domain_over_integers", PLAIN, (Shape.OCTET_LIST, Shape.NULL)),
    (list_of("int64"), None, PLAIN, (Shape.OCTET_LIST, Shape.NULL)),
    (list_of("int64"), "_OID", PLAIN, (Shape.NULL,)),
    (list_of("string", JSON), None, PLAIN, (Shape.TEXT_LIST, Shape.NULL)),
    (list_of("string", JSON), "_JSONB", PLAIN, (Shape.TEXT_LIST,)),
    (list_of("string", JSON), "_HSTORE", PLAIN, (Shape.NULL,)),
    (DAYS, "date[]", PLAIN, (Shape.OCTET_LIST,)),
    (DAYS, "date[]", ISO, (Shape.OCTET_LIST,)),
    (ISO_DATES, "date[]", PLAIN, (Shape.NULL,)),
    (ISO_DATES, None, PLAIN, (Shape.NULL,)),
    (CONNECT_DATES, "date[]", PLAIN, (Shape.NULL,)),
    (CONNECT_DATES, None, PLAIN, (Shape.NULL,)),
    (list_of("struct", "io.debezium.time.StructuredDate"), "date[]", PLAIN, (Shape.NULL,)),
    (GEOMETRY, None, PLAIN, (Shape.NULL,)),
    (GEOMETRY, "geometry", PLAIN, (Shape.NULL,)),
    (GEOMETRY, "polygon", PLAIN, (Shape.NULL,)),
    (list_of("double"), "vector", PLAIN, (Shape.NULL,)),
    (field_of("double"), None, PLAIN, ()),
    (field_of("double"), None, DOUBLES, (Shape.NULL,)),
    (field_of("double"), "domain_over_numeric", DOUBLES, (Shape.NULL,)),
    (field_of("double"), "float8", DOUBLES, ()),
    (field_of("double"), "numeric", PLAIN, (Shape.NULL,)),
    (VARIABLE, "numeric", ConnectorModes(decimals=DecimalMode.STRING), (Shape.NULL,)),
    (field_of("string"), "numeric", PLAIN, (Shape.TEXT,)),
    (field_of("string"), None, PLAIN, (Shape.TEXT,)),
    (field_of("string"), None, OCTET_TEXTS, (Shape.TEXT, Shape.NULL)),
    (field_of("string"), "domain_over_bytes", OCTET_TEXTS, (Shape.TEXT, Shape.NULL)),
    (field_of("string"), "varchar", OCTET_TEXTS, (Shape.TEXT,)),
    (field_of("string"), "bytea", PLAIN, (Shape.NULL,)),
    (field_of("bytes"), "bytea", OCTET_TEXTS, (Shape.BASE64,)),
    (field_of("bytes"), "text", PLAIN, (Shape.BASE64,)),
    (field_of("string"), "domain_over_text", PLAIN, (Shape.TEXT,)),
    (field_of("string", "io.debezium.data.Enum"), "mood", PLAIN, ()),
    (field_of("string", JSON), None, PLAIN, (Shape.TEXT, Shape.HSTORE_TEXT)),
    (field_of("string", JSON), "domain_over_hstore", PLAIN, (Shape.TEXT, Shape.HSTORE_TEXT, Shape.NULL)),
    (field_of("map"), None, PLAIN, (Shape.HSTORE_MAP,)),
]


@pytest.mark.parametrize(("field", "declared", "modes", "expected"), CASES)
def test_shapes_by_what_is_known(
    field: Mapping[str, Any], declared: str | None, modes: ConnectorModes, expected: tuple[Shape, ...]
) -> None:
    """A type that is not known to send a marker may send null, and the block knows the connector's modes."""
    encoding = None if declared is None else declared_encoding(PostgresType.parse(declared), modes)
    assert expected == evidence_of(field, encoding, NEW, modes)[1]


def test_a_numeric_without_a_precision_may_be_large() -> None:
    """The connector propagates its length as 0, which is not a precision."""
    parameters = {"__debezium.source.column.type": "NUMERIC", "__debezium.source.column.length": "0"}
    expected = PostgresType("numeric")
    assert expected == block_type({**VARIABLE, "parameters": parameters})


@pytest.mark.parametrize("declared", ["geometry", "geography", "vector", "halfvec", "polygon", "path"])
def test_null_in_a_declared_type_without_a_marker_is_refused(declared: str) -> None:
    """Its meaning is not declared, so the update waits in quarantine."""
    update = line(envelope("u", after={"id": 1, "big": None}), {"id": 1})
    columns = {TABLE: {"id": "bigint", "big": declared}}
    assert "`null_policies`" in only_fault(update, columns=columns).reason
    policies = {declared: "unavailable"}
    assert only_event(update, columns=columns, null_policies=policies).unavailable_columns == ("big",)


def test_the_policy_of_a_domain_is_found_by_its_name_and_by_what_it_is() -> None:
    """The name takes precedence over the type of the schema block."""
    block = {**list_of("int32"), "parameters": {"__debezium.source.column.type": "INTS"}}
    schema = {"fields": [{"field": "after", "fields": [{**field_of("int64"), "field": "id"}, block]}]}
    value = {"schema": schema, "payload": envelope("u", after={"id": 1, "big": None})}
    update = line(value, {"id": 1})
    assert "`big`" in only_fault(update, columns={}).reason
    for policies in ({"integer[]": "unavailable"}, {"ints": "unavailable", "integer[]": "null"}):
        assert only_event(update, columns={}, null_policies=policies).unavailable_columns == ("big",)


BITS: Final = {**field_of("bytes", "io.debezium.data.Bits"), "parameters": {"length": "11"}}
IN_LINE: Final[list[tuple[str, Mapping[str, Any] | None]]] = [
    # a declared type, and what a block says of it
    ("bit(11)", None),
    ("bit(152)", None),
    ("bit varying(20)", None),
    ("bit(11)", BITS),
    ("varbit(11)", BITS),
    ("isbn", None),
    ("isbn", field_of("string")),
    ("ean13", field_of("bytes")),
]


@pytest.mark.parametrize(("declared", "field"), IN_LINE)
def test_null_is_null_in_a_type_that_is_always_sent(declared: str, field: Mapping[str, Any] | None) -> None:
    """PostgreSQL moves nothing out of its row that is no longer than the pointer to it, 24 octets."""
    columns = {TABLE: {"id": "bigint", "big": declared}}
    value = envelope("u", after={"id": 1, "big": None})
    if field is not None:
        block = {"fields": [{"field": "after", "fields": [{**field_of("int64"), "field": "id"}, field]}]}
        value = {"schema": block, "payload": value}
    policies = {"*": "unavailable"}
    updated = only_event(line(value, {"id": 1}), columns=columns, null_policies=policies)
    assert updated.unavailable_columns == ()
    assert updated.new_values == '{"big":null}'


@pytest.mark.parametrize("declared", ["bit(153)", "bit varying(153)", "bit varying", "bit(3)[]"])
def test_null_in_long_bits_is_in_doubt(declared: str) -> None:
    """Longer ones may lie out of line, and arrays of any length arrive as null at all times."""
    columns = {TABLE: {"id": "bigint", "big": declared}}
    update = line(envelope("u", after={"id": 1, "big": None}), {"id": 1})
    assert "`null_policies`" in only_fault(update, columns=columns).reason
