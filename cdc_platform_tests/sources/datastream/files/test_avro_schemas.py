"""Schema files of Datastream, and the schemas of Avro files that JSON files borrow."""

import json
from io import BytesIO
from typing import Any

import pytest

from cdc_platform.sources.datastream.files.avro_files import schema_of_avro
from cdc_platform.sources.datastream.files.avro_schemas import fields_of_schema
from cdc_platform.sources.datastream.settings.declarations import declared_type, names_of_table
from cdc_platform.sources.datastream.values.types import FieldType, Kind
from cdc_platform_tests.unified_types import UNIFIED, avro_file, event_schema

PAYLOAD = [("id", "long"), ("price", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2})]
FIELDS = (("id", FieldType(Kind.LONG)), ("price", FieldType(Kind.DECIMAL, 5, 2)))


def test_a_schema_file_may_be_of_the_event_or_of_its_payload() -> None:
    """Both have the same columns."""
    whole = event_schema(PAYLOAD)
    payload = next(field for field in whole["fields"] if field["name"] == "payload")["type"]
    assert FIELDS == fields_of_schema(json.dumps(whole)) == fields_of_schema(json.dumps(payload))


@pytest.mark.parametrize("text", ["[]", '"string"', '{"type": "enum"}', "{"])
def test_what_is_no_schema_is_refused(text: str) -> None:
    """The caller says which file it was."""
    with pytest.raises(ValueError, match=r"."):
        fields_of_schema(text)


@pytest.mark.parametrize("kind", UNIFIED)
def test_every_unified_type_is_recognised(kind: str) -> None:
    """The kind of a column is that of its unified type; a VARCHAR is a text with a length."""
    schema = event_schema([("c", UNIFIED[kind].schema("c"))])
    [(_, field)] = fields_of_schema(json.dumps(schema))
    assert {"VARCHAR": Kind.STRING}.get(kind, Kind(kind)) is field.kind


def test_a_type_that_was_named_before_is_the_same_type() -> None:
    """A schema defines a record once, and names it afterwards."""
    first = UNIFIED["INTERVAL"].schema("c") | {"namespace": "n"}
    for name in ("r_c", "n.r_c"):
        schema = event_schema([("c", first), ("d", name)])
        assert [field.kind for _, field in fields_of_schema(json.dumps(schema))] == [Kind.INTERVAL] * 2


def test_types_of_one_name_in_two_namespaces_are_two() -> None:
    """A column has the type that Avro finds by its full name: written, inherited or dotted."""
    interval, clock = UNIFIED["INTERVAL"].schema("c"), UNIFIED["DATETIME"].schema("c")
    first, second = (
        {**schema, "name": "r", "namespace": name} for schema, name in ((interval, "n1"), (clock, "n2"))
    )
    columns = [("a", first), ("b", second), ("c", "n1.r"), ("d", "n2.r"), ("e", {**interval, "name": "n3.r"})]
    inner_fields = [{"name": "nestedArray", "type": "null"}, {"name": "elementValue", "type": "r"}]
    inner = {"type": "record", "name": "n2.outer", "fields": inner_fields}
    fields = fields_of_schema(json.dumps(event_schema([*columns, ("f", inner)])))
    expected = [Kind.INTERVAL, Kind.DATETIME, Kind.INTERVAL, Kind.DATETIME, Kind.INTERVAL, Kind.ARRAY]
    assert [field.kind for _, field in fields] == expected
    element = fields[-1][1].element
    assert element is not None
    assert element.kind is Kind.DATETIME


@pytest.mark.parametrize("name", [5, ["a"], {}])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    """Be it the type's own name or its namespace, the schema cannot be used."""
    for wrong in ({"name": name}, {"name": "a", "namespace": name}):
        schema = event_schema([("a", {"type": "record", "fields": [], **wrong})])
        with pytest.raises(ValueError, match="not text"):
            fields_of_schema(json.dumps(schema))


def test_an_avro_file_has_the_types_of_its_schema_key() -> None:
    """JSON events of the key may be read with them; a file without events gives no schema."""
    data = avro_file(event_schema(PAYLOAD), [{"id": 1, "price": b"\x01"}])
    assert schema_of_avro(BytesIO(data)) == ("a" * 40, FIELDS)
    assert schema_of_avro(BytesIO(avro_file(event_schema(PAYLOAD), []))) is None
    assert schema_of_avro(BytesIO(data[:100])) is None


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"schema": "HR", "table": "JOBS", "database": "XE"}, "HR.JOBS"),  # Oracle, SQL Server
        ({"schema": ["dbo"], "table": "orders", "database": 5}, "dbo.orders"),  # SQL Server, as documented
        ({"database": "shop", "table": "orders"}, "shop.orders"),  # MySQL
        ({"database": "shop", "collection": "orders"}, "shop.orders"),  # MongoDB
        ({"object_name": "Account", "domain": "d"}, "Account"),  # Salesforce
    ],
)
def test_tables_are_called_as_their_source_calls_them(metadata: dict[str, Any], expected: str) -> None:
    """The name that declarations use is the source's own, and the event's object as a last resort."""
    assert (expected, "object") == names_of_table("object", metadata)
    assert names_of_table("object", {}) == ("object",)


def test_arrays_are_declared_by_their_element() -> None:
    """A declared array has the element's own declaration."""
    assert FieldType(Kind.ARRAY, element=FieldType(Kind.DECIMAL, 5, 2)) == declared_type(
        "array<decimal(5, 2)>"
    )
