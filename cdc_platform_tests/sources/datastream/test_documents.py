"""Documents of MongoDB: identifiers of any type, and updates that come without their data."""

import json
from typing import Any

import pytest

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.datastream.events.interpreter import Interpreter
from cdc_platform.sources.datastream.files.file_events import decode_file
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform_tests.sources.datastream.generated_events import to_run
from cdc_platform_tests.sources.datastream.reference_sink import ReferenceSink


def document(
    identifier: Any, data: Any, *, change: str = "UPDATE", second: int = 7, ordinal: int = 1, uuid: str = "u"
) -> SourceEvent:
    """Return the change of a generated event of MongoDB."""
    payload = {"_id": identifier, "data": data}
    actual = meaning(payload, change=change, second=second, ordinal=ordinal, uuid=uuid)
    assert isinstance(actual, SourceEvent), actual
    return actual


def meaning(
    payload: Any, *, change: str, second: int = 7, ordinal: int = 1, uuid: str = "u", method: str = "cdc"
) -> SourceEvent | FaultyEvent:
    """Return what a generated event of MongoDB means."""
    event = {
        "uuid": uuid,
        "source_timestamp": second * 1000,
        "read_method": method,
        "sort_keys": [second, ordinal],
        "source_metadata": {"database": "d", "collection": "c", "change_type": change},
        "payload": payload,
    }
    return Interpreter(DatastreamSettings("stream")).interpret(to_run(event))


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [
        (1, '{"_id":"1"}'),
        (9223372036854775806, '{"_id":"9223372036854775806"}'),
        ("123.456", '{"_id":"123.456"}'),
        ('"test_id"', '{"_id":"\\"test_id\\""}'),
        ("test_id", '{"_id":"\\"test_id\\""}'),  # a text that is not JSON
        ('{"$oid": "645c9a7e7b8b1a0e9c0f8b3a"}', '{"_id":"{\\"$oid\\":\\"645c9a7e7b8b1a0e9c0f8b3a\\"}"}'),
        (
            '{"$binary": {"base64": "AQID", "subType": "00"}}',
            '{"_id":"{\\"$binary\\":{\\"base64\\":\\"AQID\\",\\"subType\\":\\"00\\"}}"}',
        ),
        ({"b": 1, "a": "x"}, '{"_id":"{\\"b\\":1,\\"a\\":\\"x\\"}"}'),  # order of fields counts
    ],
)
def test_identifiers_of_every_type(identifier: Any, expected: str) -> None:
    """An identifier is its compact JSON, so that a number and the text of it are two documents."""
    assert expected == document(identifier, {"v": 1}).keys


@pytest.mark.parametrize("count", [1, 2])
def test_updates_without_data_leave_the_document_as_it_is(count: int) -> None:
    """The document is gone, and its delete follows; so it is where no event of a file has data."""
    metadata = {"database": "d", "collection": "c", "change_type": "UPDATE"}
    events = [
        {
            "uuid": str(number),
            "source_timestamp": 7_000,
            "read_method": "cdc",
            "sort_keys": [7, number],
            "source_metadata": metadata,
            "payload": {"_id": number},
        }
        for number in range(count)
    ]
    changes = decode_file(DatastreamSettings("stream"), "\n".join(map(json.dumps, events)).encode())
    assert [("{}", ("data",))] * count == [
        (change.new_values, change.unavailable_columns)
        for change in changes
        if isinstance(change, SourceEvent)
    ]


@pytest.mark.parametrize("other", [7, True, 1.5, {"$oid": "60"}, 2**64, "x"])
@pytest.mark.parametrize("identifier", ['{"$oid":"5f"}', "123", "text", 5, 1.5, {"b": 1}, 2**70, False])
def test_an_identifier_does_not_depend_on_other_documents(identifier: Any, other: Any) -> None:
    """A JSON file with identifiers of several types gives the same keys as one file for each type."""

    def keys(*identifiers: Any) -> list[str]:
        metadata = {"database": "d", "collection": "c", "change_type": "CREATE"}
        event = {"read_method": "cdc", "sort_keys": [7, 1], "source_metadata": metadata}
        lines = [json.dumps({**event, "payload": {"_id": item, "data": {}}}) for item in identifiers]
        events = decode_file(DatastreamSettings("stream"), "\n".join(lines).encode())
        return [event.keys for event in events if isinstance(event, SourceEvent)]

    assert keys(identifier, other) == [*keys(identifier), *keys(other)]
    assert len(keys(identifier, other)) == 2


@pytest.mark.parametrize("identifier", [1, 1.5, "x", '{"$oid": "5f"}', {"$oid": "5f"}])
def test_a_delete_may_name_its_document_by_metadata_only(identifier: Any) -> None:
    """The identifier is the same compact JSON there as in a payload."""
    event = {
        "uuid": "u",
        "source_timestamp": 7_000,
        "read_method": "cdc",
        "sort_keys": [7, 1],
        "source_metadata": {
            "database": "d",
            "collection": "c",
            "change_type": "DELETE",
            "primary_keys": {"_id": identifier},
        },
        "payload": None,
    }
    actual = Interpreter(DatastreamSettings("stream")).interpret(to_run(event))
    assert isinstance(actual, SourceEvent), actual
    assert document(identifier, {}).keys == actual.keys


@pytest.mark.parametrize("depth", [10, 500, 5_000])
def test_an_identifier_may_be_nested_deeply(depth: int) -> None:
    """An identifier names one document, for any depth of its arrays."""
    identifier = "[" * depth + "]" * depth
    assert document(identifier, {}).keys == document(identifier, {}).keys
    assert document(identifier, {}).keys != document(f"[{identifier}]", {}).keys


def test_an_update_without_data_says_nothing() -> None:
    """A document that was deleted before its update was read keeps its data until the delete comes."""
    event = document(1, None)
    assert (event.new_values, event.unavailable_columns) == ("{}", ("data",))


def test_the_ordinal_orders_changes_within_a_second() -> None:
    """Seconds and ordinals compare as numbers."""
    keys = [
        document(1, {}, second=second, ordinal=n).ordering_key for second, n in ((9, 9), (9, 10), (10, 1))
    ]
    assert keys == sorted(set(keys))


def test_an_equal_cluster_time_is_the_same_change() -> None:
    """Of two events at one cluster time one wins, in any order of arrival."""
    events = [document(1, {"v": n}, uuid=f"u{n}") for n in (1, 2)]
    outcomes = []
    for order in (events, events[::-1], [*events, *events]):
        sink = ReferenceSink()
        sink.take(order)
        outcomes.append(sink.rows("d.c"))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_a_collection_has_identifiers_of_one_type_in_the_lake() -> None:
    """The column of identifiers is text, for every type of identifier."""
    assert document(1, {}).column_types == document('"x"', {}).column_types


@pytest.mark.parametrize(
    ("change", "method"), [("CREATE", "cdc"), ("READ", "backfill"), ("BACKFILL", "cdc"), ("", "backfill")]
)
@pytest.mark.parametrize("payload", [{"_id": "1", "data": None}, {"_id": "1"}])
def test_a_document_without_data_is_a_fault(change: str, method: str, payload: dict[str, Any]) -> None:
    """Only an update may come too late for its document; elsewhere the data is lost, and never NULL."""
    actual = meaning(payload, change=change, method=method)
    assert isinstance(actual, FaultyEvent)
    assert "writes a document, but has no data" in actual.reason


@pytest.mark.parametrize(("change", "method"), [("READ", "cdc"), ("BACKFILL", "cdc"), ("UPDATE", "backfill")])
def test_a_document_that_a_backfill_read(change: str, method: str) -> None:
    """The type of the change or the read method states it; captured changes win."""
    actual = meaning({"_id": "1", "data": {}}, change=change, method=method)
    assert isinstance(actual, SourceEvent)
    assert actual.mod_type is ModType.SNAPSHOT
    assert actual.ordering_key < document("1", {}).ordering_key


def test_a_document_may_be_the_payload_itself() -> None:
    """Without the column `data`, the fields of the payload are the whole document, and none is kept."""
    actual = meaning({"_id": "1", "name": "x"}, change="UPDATE")
    assert isinstance(actual, SourceEvent)
    assert (actual.new_values, actual.unavailable_columns) == ('{"name":"x"}', ())
