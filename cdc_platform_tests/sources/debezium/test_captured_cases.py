"""Events of a real connector of a real database, read to the end, are the database's rows."""

import json
from collections import Counter, defaultdict
from random import Random
from typing import Any, Final
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.model.rows.keyless import keyless_keys
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.observed_columns import ObservedColumns, parse_column_types
from cdc_platform.model.schema.schema_events import SchemaChange
from cdc_platform.model.schema.schema_finder import find_events
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.stream.events import SourceEvent, SourceMessage
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.debezium.rows.checkpoints import Decoded
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER
from cdc_platform.sources.debezium.wire.message_contents import TransactionBegin, TransactionEnd
from cdc_platform.sources.debezium.wire.messages import Message
from cdc_platform_tests.sources.debezium.applied_changes import apply_changes, rows_of, true_rows
from cdc_platform_tests.sources.debezium.captures_read import (
    GOLDEN,
    decode,
    events_in,
    faults_in,
    read_messages,
    settings_for,
    truth_of,
)

WHOLE: Final = ("keys", "incremental_snapshot", "names", "transactions", "truncates")
"""Captures whose stream describes the tables completely."""


def changes_of(name: str, *, without_headers: bool = False, **chosen: Any) -> list[SourceEvent]:
    """Return the changes of a capture of which nothing is refused."""
    decoded = decode(name, settings_for(truth_of(name), **chosen), without_headers=without_headers)
    assert not faults_in(decoded)
    return events_in(decoded)


@pytest.mark.parametrize("without_headers", [False, True])
@pytest.mark.parametrize("name", WHOLE)
def test_tables_are_the_database_s(name: str, *, without_headers: bool) -> None:
    """In batches of any size, with and without headers, rows are exact after any key change."""
    events = changes_of(name, without_headers=without_headers)
    for batch in (1, 2, 7, len(events)):
        tables, _ = apply_changes(events, batch)
        for table, truth in truth_of(name).items():
            assert true_rows(truth) == rows_of(tables, table)


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 5))
def test_partitions_of_a_topic_may_be_read_in_any_order(random: Random, partitions: int) -> None:
    """Halves of a key change lie in different partitions; ordering keys put all changes in one order."""
    queues: dict[int, list[Message]] = defaultdict(list)
    for message in read_messages(GOLDEN / "keys.jsonl.gz"):
        assert isinstance(message, Message)
        queues[crc32(str(message.key).encode()) % partitions].append(message)
    decoder, decoded = Decoder(settings_for(truth_of("keys"))), list[Decoded]()
    while queues:
        chosen = random.choice(sorted(queues))
        decoded += decoder.decode(queues[chosen].pop(0))
        if not queues[chosen]:
            del queues[chosen]
    tables, _ = apply_changes(events_in(decoded), 10)
    for table, truth in truth_of("keys").items():
        assert true_rows(truth) == rows_of(tables, table)


def test_only_a_literal_marker_stays() -> None:
    """No marker becomes a value, except one that a user inserted; it is counted."""
    events = changes_of("keys")
    with_marker = [event for event in events if DEFAULT_PLACEHOLDER in (event.new_values or "")]
    assert with_marker
    for event in with_marker:
        assert event.mod_type in (ModType.INSERT, ModType.SNAPSHOT)
        assert event.previous_keys is None
        assert "literal_markers" in json.loads(event.metadata or "{}")


def test_key_changes_are_paired_without_headers() -> None:
    """The halves of a key change share a position in the log, so that nothing else is needed to pair them."""
    with_headers, without = changes_of("keys"), changes_of("keys", without_headers=True)
    moved = [(event.keys, event.previous_keys) for event in with_headers if event.previous_keys]
    assert len(moved) > 10
    assert moved == [(event.keys, event.previous_keys) for event in without if event.previous_keys]
    assert [item.unavailable_columns for item in with_headers] == [
        item.unavailable_columns for item in without
    ]


@pytest.mark.parametrize("name", ["keys", "transactions", "truncates", "identities"])
def test_a_second_delivery_has_the_same_identities_and_order(name: str) -> None:
    """Every event has a unique, repeatable identity, also without a key."""
    settings = settings_for(truth_of(name))
    once, again = events_in(decode(name, settings)), events_in(decode(name, settings))
    assert len(once) == len({event.event_id for event in once})
    assert [event.event_id for event in once] == [event.event_id for event in again]
    assert [event.ordering_key for event in once] == [event.ordering_key for event in again]


def test_transactions_have_the_ids_and_counts_of_their_boundaries() -> None:
    """The id of a transaction differs from record to record; the part that is used does not."""
    decoded = decode("transactions", settings_for(truth_of("transactions")))
    ends = {item.transaction_id: item.event_count for item in decoded if isinstance(item, TransactionEnd)}
    begun = {item.transaction_id for item in decoded if isinstance(item, TransactionBegin)}
    marked = [item for item in decoded if isinstance(item, SourceMessage)]
    counted = Counter(event.transaction_id for event in events_in(decoded) if event.transaction_id)
    counted.update(item.transaction_id for item in marked if item.transaction_id)
    assert ends == dict(counted)
    assert ends.keys() == begun
    assert {True, False} == {bool(item.transaction_id) for item in marked}


def test_commits_are_in_order_though_positions_are_not() -> None:
    """The transaction that wrote first commits last: its changes come last, with smaller positions."""
    events = [event for event in changes_of("transactions") if event.transaction_id]
    arrived = sorted(events, key=lambda event: event.position)
    positions = [json.loads(event.metadata or "{}")["lsn"] for event in arrived]
    assert positions != sorted(positions)
    assert [event.event_id for event in arrived] == [event.event_id for event in events]


def test_truncates_are_changes_of_their_table() -> None:
    """Each table of a TRUNCATE has its own change, with neither key nor values."""
    truncates = [event for event in changes_of("truncates") if event.mod_type is ModType.TRUNCATE]
    assert len({event.table for event in truncates}) > 1
    assert {("{}", None)} == {(event.keys, event.new_values) for event in truncates}


def test_an_index_other_than_the_key_is_refused() -> None:
    """A made-up key is never deleted, nor is the table changed from then on; other identities are exact."""
    decoded, truths = decode("identities", settings_for(truth_of("identities"))), truth_of("identities")
    faults = faults_in(decoded)
    assert {"public.ri_index"} == {fault.table for fault in faults}
    assert all("REPLICA IDENTITY FULL" in fault.reason for fault in faults)
    tables, unresolved = apply_changes(events_in(decoded), 5)
    assert not unresolved
    for table, truth in truths.items():
        if truth.keys and table != "public.ri_index":
            assert true_rows(truth) == rows_of(tables, table)


def test_rows_without_a_key_are_a_multiset() -> None:
    """Each insert adds a row, each delete takes one away of those that equal the row before."""
    rows: Counter[str] = Counter()
    for event in events_in(decode("identities", settings_for(truth_of("identities")))):
        if event.table == "public.ri_full_no_key":
            values = json.loads(event.new_values or event.old_values or "{}")
            assert event.keys == keyless_keys(values)
            rows.update({event.new_values or "": 1} if event.new_values else {event.old_values or "": -1})
    expected = Counter(
        json.dumps(row, ensure_ascii=False, separators=(",", ":"))
        for row in true_rows(truth_of("identities")["public.ri_full_no_key"])
    )
    assert min(rows.values()) >= 0
    assert expected == +rows


def test_before_is_passed_on_only_where_it_is_the_row() -> None:
    """Under the default identity the row before has made-up zeros, which no value is taken from."""
    events = changes_of("keys")
    assert {None} == {event.old_values for event in events}
    full = [
        event
        for event in events_in(decode("identities", settings_for(truth_of("identities"))))
        if event.table == "public.ri_full" and event.mod_type is ModType.UPDATE
    ]
    assert full
    assert all(event.old_values and not event.unavailable_columns for event in full)


def test_rows_that_were_never_seen_are_unresolved_until_they_come() -> None:
    """Without a snapshot the values of old rows are unknown, neither NULL nor a marker, until an event."""
    tables, unresolved = apply_changes(changes_of("no_snapshot"), 1)
    assert unresolved
    expected = true_rows(truth_of("no_snapshot")["public.items"])
    for row, truth in zip(rows_of(tables, "public.items"), expected, strict=True):
        assert row == {name: value for name, value in truth.items() if name in row}


def test_an_incremental_snapshot_heals_and_overwrites_nothing() -> None:
    """Rows of a snapshot in between have no position; they count at the commit before them."""
    events = changes_of("incremental_snapshot")
    _, unresolved = apply_changes(events, 1)
    assert unresolved
    kinds = [event.mod_type for event in events]
    assert ModType.SNAPSHOT in kinds
    assert kinds.index(ModType.SNAPSHOT) > 0


def test_partitions_are_one_table() -> None:
    """Sent to one table, rows of partitions are there once; a partition's TRUNCATE is refused."""
    settings = settings_for(truth_of("partition_leaf"), partitions={r"public\.sales_\d+": "public.sales"})
    decoded = decode("partition_leaf", settings)
    assert {"public.sales"} == {event.table for event in events_in(decoded)}
    (fault,) = faults_in(decoded)
    assert "snapshot" in fault.reason
    tables, unresolved = apply_changes(events_in(decoded), 3)
    assert not unresolved
    other_years = [row for row in rows_of(tables, "public.sales") if row["year"] != 2024]
    truth = true_rows(truth_of("partition_leaf")["public.sales"])
    assert [row for row in truth if row["year"] != 2024] == other_years


def test_partitions_of_a_publication_by_the_root_arrive_as_one() -> None:
    """The publication names the table itself, and a TRUNCATE of a partition is not sent at all."""
    tables, unresolved = apply_changes(changes_of("partition_root"), 3)
    assert not unresolved
    arrived, truth = (rows_of(tables, "public.sales"), true_rows(truth_of("partition_root")["public.sales"]))
    assert all(row in arrived for row in truth)


def test_names_are_those_of_the_database() -> None:
    """Topics have other names than tables that are quoted; the source says the table's own."""
    tables = {event.table for event in changes_of("names")}
    assert set(truth_of("names")) == tables


def test_a_flattened_stream_with_its_order_is_exact() -> None:
    """With order fields in addition to the columns, a flattened stream is usable; it drops truncates."""
    events, paired = changes_of("flat_rewrite"), changes_of("flat_rewrite", without_headers=True)
    assert any(event.previous_keys for event in events)
    assert [event.previous_keys for event in events] == [event.previous_keys for event in paired]
    tables, unresolved = apply_changes(events, 2)
    assert not unresolved
    (truth,) = true_rows(truth_of("flat_rewrite")["public.items"])
    assert truth in rows_of(tables, "public.items")


def test_a_flattened_stream_without_order_is_refused() -> None:
    """Nothing shows which change came first, and a tombstone alone would be a delete: both say what to do."""
    decoded = decode("flat_default", settings_for(truth_of("flat_default")))
    assert not events_in(decoded)
    assert faults_in(decoded)
    assert all("add.fields=op" in fault.reason for fault in faults_in(decoded))


def test_masked_markers_need_to_be_described() -> None:
    """A truncated marker is refused until the settings say how it was cut, and a hashed one is found, too."""
    truth = truth_of("masked")
    (fault,) = faults_in(decode("masked", settings_for(truth)))
    assert "column_placeholders" in fault.reason
    masks = {"public.items": {"big": "truncate:10", "other": "hash:SHA-256:s"}}
    (update,) = [
        event for event in changes_of("masked", column_placeholders=masks) if event.mod_type is ModType.UPDATE
    ]
    assert {"big", "other"} == set(update.unavailable_columns)


def test_columns_come_and_go_with_the_rows_that_have_them() -> None:
    """There are no events of DDL: each change says which columns it knows, and of which type."""
    types = [
        {column["name"]: column["type"] for column in json.loads(event.column_types)}
        for event in events_in(decode("evolve_schema", settings_for({})))
        if event.table == "public.items"
    ]
    assert "added" not in types[0]
    assert "renamed" in types[-2]
    assert "other" not in types[-2]


def test_definitions_that_change_are_found() -> None:
    """A new name is a column in addition to the old one; a wider integer has the same type in the lake."""
    history, schema_changes = SchemaHistory(), list[tuple[SchemaChange, str | None]]()
    changes = [event for event in events_in(decode("evolve_schema", settings_for({}))) if event.new_values]
    for cycle, event in enumerate(changes, start=1):
        observation = ObservedColumns(cycle, parse_column_types(event.column_types) or {}, is_whole=True)
        schema_read = SchemaRead(cycle, (), {}, {}, is_exact=False)
        for schema_event in find_events(history, cycle, {event.table: [observation]}, schema_read):
            history = history.after(schema_event)
            schema_changes.append((schema_event.change, schema_event.name))
    later = [name for change, name in schema_changes[6:] if change is SchemaChange.COLUMN_ADDED]
    assert later == ["added", "renamed", "late", "id", "t"]
    assert {SchemaChange.TABLE_ADDED, SchemaChange.COLUMN_ADDED} == {change for change, _ in schema_changes}
