"""Names of tables, and the databases that they leave out."""

import json
from typing import Any, Final

import pytest

from cdc_platform.model.schema.observed_columns import database_of, parse_column_types
from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.sources.datastream.files.file_events import decode_file
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.settings.kinds import SourceKind
from cdc_platform.sources.datastream.settings.table_names import table_name, unnamed_database

ORGANISATIONS: Final = ("live.my.example", "test.my.example")


@pytest.mark.parametrize(
    ("kind", "metadata", "template", "expected"),
    [
        ("oracle", {"database": "XE"}, None, "XE"),
        ("sqlserver", {"database": "XE"}, "{table}", ""),
        ("sqlserver", {"database": 5, "schema": ["dbo"]}, None, "5"),
        ("postgresql", {}, None, ""),
        ("mysql", {"database": "shop"}, None, ""),
        ("mongodb", {"database": "shop"}, None, ""),
        ("salesforce", {"domain": ORGANISATIONS[0]}, None, ORGANISATIONS[0]),
        ("salesforce", {"domain": ORGANISATIONS[0]}, "{database}.{table}", ""),
        ("salesforce", {}, None, ""),
    ],
)
def test_a_name_may_leave_out_the_database(
    kind: str, metadata: dict[str, Any], template: str | None, expected: str
) -> None:
    """A table belongs to a database that its name does not contain, unless the user has chosen the name."""
    assert expected == unnamed_database(SourceKind(kind), metadata, template)


def test_a_template_separates_organisations() -> None:
    """Salesforce's domain stands for the database, since objects of two organisations have equal names."""
    names = [
        table_name(SourceKind.SALESFORCE, {"object_name": "Account", "domain": domain}, "{database}.{table}")
        for domain in ORGANISATIONS
    ]
    assert names == ['"live.my.example".Account', '"test.my.example".Account']


@pytest.mark.parametrize("template", [None, "{database}.{table}"])
def test_declared_types_and_databases_are_those_of_the_organisation(template: str | None) -> None:
    """Events of two organisations in one file differ in their domain alone, and have equal identifiers."""
    names = [f'"{domain}".Account' for domain in ORGANISATIONS] if template else ["Account"]
    columns = {name: {"n": "DECIMAL(9,2)"} for name in names}
    settings = DatastreamSettings("files", table_name=template, columns=columns)
    lines = [
        {
            "uuid": "u",
            "object": "Account",
            "read_method": "salesforce-cdc",
            "source_timestamp": 1_000,
            "source_metadata": {"object_name": "Account", "domain": domain, "primary_keys": ["Id"]},
            "payload": {"Id": "001", "n": 1},
        }
        for domain in ORGANISATIONS
    ]
    events = list(decode_file(settings, "\n".join(map(json.dumps, lines)).encode()))
    changes = [event for event in events if isinstance(event, SourceEvent)]
    expected = [f"{domain}.Account/u" for domain in ORGANISATIONS]
    assert expected == [change.event_id for change in changes]
    assert [change.new_values for change in changes] == ['{"n":"1.00"}'] * 2
    databases = ["", ""] if template else [*ORGANISATIONS]
    assert databases == [database_of(parse_column_types(change.column_types) or {}) for change in changes]


def test_a_part_may_be_a_number_or_an_array_of_one() -> None:
    """So the documentation has database and schema of SQL Server; declared types and names are the same."""
    settings = DatastreamSettings("files", columns={"dbo.orders": {"n": "DECIMAL(9,2)"}})
    place = {"database": 5, "schema": ["dbo"], "table": "orders", "lsn": "1:2:3", "primary_keys": ["id"]}
    event = {
        "uuid": "u",
        "read_method": "sqlserver-cdc",
        "source_timestamp": 1_000,
        "source_metadata": place,
        "payload": {"id": 1, "n": 1},
    }
    (change,) = decode_file(settings, json.dumps(event).encode())
    assert isinstance(change, SourceEvent)
    assert (change.table, change.event_id, change.new_values) == (
        "dbo.orders",
        "5.dbo.orders/u",
        '{"n":"1.00"}',
    )
