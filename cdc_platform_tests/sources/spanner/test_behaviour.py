"""Behaviour of every server of change streams: the simulator and the emulator, in both dialects."""

import re
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any, Final

import pytest
from google.api_core.datetime_helpers import DatetimeWithNanoseconds

from cdc_platform.model.base.timestamps import from_datetime, to_datetime
from cdc_platform.model.stream.ordering_key import record_order
from cdc_platform.simulator.wire.simulator_settings import Dialect
from cdc_platform_tests.server_fixtures import Answers
from cdc_platform_tests.sources.spanner.servers import (
    CHANGE_STREAM,
    CHILDREN,
    DATA,
    HEARTBEAT,
    Server,
    children_of,
    data_of,
    micros,
)

pytestmark = pytest.mark.integration

MICROSECOND: Final = timedelta(microseconds=1)
ANY_TIME: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"


def start(server: Server) -> datetime:
    """Return the beginning of the stream."""
    return to_datetime(server.created_micros)


def test_first_query_returns_children_only(server: Server) -> None:
    """The query without a token names the partitions of its start, without parents, and ends."""
    records = list(server.read(start(server)))

    assert {CHILDREN} == {kind for record in records for kind in record}
    assert {server.created_micros} == {micros(record) for record in records}
    assert all(parents in ([], [None]) for _, parents in children_of(records).values())


def test_function_names_of_googlesql_know_no_case(any_server: Server) -> None:
    """In GoogleSQL any case of the function's name will do."""
    if any_server.dialect is Dialect.GOOGLESQL:
        sql = any_server.stream_sql(stream=CHANGE_STREAM.upper())
        assert list(any_server.read(start(any_server), sql=sql))


def test_partition_ends_with_its_children(everything: Answers) -> None:
    """A partition that has ended returns its data, then its children, of which it is a parent."""
    partitions, end_micros = everything.partitions, everything.end_micros
    ended = {token: records for token, records in partitions.items() if token and CHILDREN in records[-1]}

    assert ended
    for token, records in ended.items():
        kinds = [next(iter(record)) for record in records]
        children = [record for record in records if CHILDREN in record]
        assert [CHILDREN] * len(children) == kinds[-len(children) :]
        assert len({micros(child) for child in children}) == 1
        assert micros(children[0]) <= end_micros
        assert all(micros(record) < micros(children[0]) for record in records if DATA in record)
        assert all(token in parents for _, parents in children_of(children).values())


def test_start_at_the_end_returns_children_only(everything: Answers) -> None:
    """A query from a partition's end on returns its children; one that starts later is refused."""
    server, partitions = everything.server, everything.partitions
    token, records = next(
        (token, records) for token, records in partitions.items() if token and CHILDREN in records[-1]
    )
    end = to_datetime(micros(records[-1]))

    assert [record for record in records if CHILDREN in record] == list(server.read(end, None, token))
    refused = server.refusal(end + MICROSECOND, None, token)
    assert refused.code == "OUT_OF_RANGE"
    assert re.match(
        r"Specified start_timestamp is invalid for the partition\. Please specify a start_timestamp within "
        rf"{ANY_TIME} and {ANY_TIME}\. Received start_timestamp: {ANY_TIME}\.",
        refused.text,
    )


def test_start_before_the_partition_is_refused(everything: Answers) -> None:
    """A query that starts before its partition is refused."""
    server, partitions = everything.server, everything.partitions
    children = {token: at for records in partitions.values() for token, at in children_of(records).items()}
    token, (begin, _) = next(
        (token, child) for token, child in children.items() if child[0] > server.created_micros
    )

    refused = server.refusal(to_datetime(begin) - MICROSECOND, None, token)

    assert refused.code == "OUT_OF_RANGE"
    assert "Specified start_timestamp is invalid for the partition." in refused.text


def test_merge_is_announced_by_both_parents(everything: Answers) -> None:
    """Both parents of a merge return the same child, with the same start."""
    partitions, end_micros = everything.partitions, everything.end_micros
    announced = defaultdict(list)
    for token, records in partitions.items():
        for child, (begin, parents) in children_of(records).items():
            announced[child].append((token, begin, tuple(parents)))
    merged = {
        child: announcements for child, announcements in announced.items() if len(announcements[0][2]) > 1
    }

    assert merged
    for announcements in merged.values():
        assert len({(begin, parents) for _, begin, parents in announcements}) == 1
        assert {token for token, _, _ in announcements} == set(announcements[0][2])
        assert announcements[0][1] <= end_micros


def test_record_fields(any_answers: Answers) -> None:
    """A data change record names its columns with type and ordinal, and its mods hold what they should."""
    record = next(
        item for item in any_answers.data if item["table_name"] == "accounts" and item["mod_type"] == "INSERT"
    )
    fields = ("name", "type", "is_primary_key", "ordinal_position")
    columns = [tuple(column[field] for field in fields) for column in record["column_types"]]

    expected = [
        ("account_id", {"code": "INT64"}, True, 1),
        ("owner", {"code": "STRING"}, False, 2),
        ("balance", {"code": "INT64"}, False, 3),
        ("opened_on", {"code": "DATE"}, False, 4),
        ("labels", {"code": "ARRAY", "array_element_type": {"code": "STRING"}}, False, 5),
    ]
    assert expected == columns
    (mod, *_) = record["mods"]
    keys, values = ["account_id"], ["balance", "labels", "opened_on", "owner"]
    assert keys == list(mod["keys"])
    assert values == list(mod["new_values"])
    assert dict(mod["old_values"]) == {}
    assert isinstance(mod["keys"]["account_id"], str)
    assert record["value_capture_type"] == "NEW_ROW"


def test_transactions_are_whole(any_answers: Answers) -> None:
    """All records of a transaction are there, in as many partitions as it says, each with a last one."""
    of_transaction = defaultdict(list)
    for token, records in any_answers.partitions.items():
        for record in data_of(records):
            of_transaction[record["server_transaction_id"]].append((token, record))

    assert of_transaction
    for parts in of_transaction.values():
        counts = {record["number_of_records_in_transaction"] for _, record in parts}
        assert counts == {len(parts)}
        tokens = Counter(token for token, _ in parts)
        assert {record["number_of_partitions_in_transaction"] for _, record in parts} == {len(tokens)}
        lasts = [token for token, record in parts if record["is_last_record_in_transaction_in_partition"]]
        assert sorted(tokens) == sorted(lasts)
        assert len(parts) == len({record_order(record["record_sequence"]) for _, record in parts})
        assert len({micros(record) for _, record in parts}) == 1


def test_records_of_a_partition_are_in_order(any_answers: Answers) -> None:
    """Timestamps of a partition never go back."""
    for records in any_answers.partitions.values():
        assert all(micros(item) <= micros(other) for item, other in pairwise(records))


def test_applying_all_records_gives_the_table(any_answers: Answers) -> None:
    """All changes in their order give the table that an exact read at that moment returns."""
    server, end_micros = any_answers.server, any_answers.end_micros
    data = sorted(
        any_answers.data,
        key=lambda record: (
            micros(record),
            record["server_transaction_id"],
            record_order(record["record_sequence"]),
        ),
    )
    balances: dict[int, int] = {}
    for record in data:
        for mod in record["mods"] if record["table_name"] == "accounts" else ():
            key = int(mod["keys"]["account_id"])
            if record["mod_type"] == "DELETE":
                del balances[key]
            else:
                balances[key] = int(mod["new_values"]["balance"])

    rows = server.select(
        "SELECT account_id, balance FROM accounts ORDER BY account_id", read_timestamp=to_datetime(end_micros)
    )
    assert sorted(balances.items()) == [tuple(row) for row in rows]


def test_both_ends_of_a_query_are_inclusive(any_answers: Answers) -> None:
    """A query from and to a record's timestamp returns that record, as often as it is asked."""
    server = any_answers.server
    token, record = next(
        (token, record)
        for token, records in any_answers.partitions.items()
        for record in records
        if DATA in record
    )
    at = to_datetime(micros(record))

    for _ in range(2):
        between = data_of(list(server.read(at, at, token)))
        assert record[DATA]["server_transaction_id"] in {item["server_transaction_id"] for item in between}
        assert {micros(record)} == {micros(item) for item in between}


def test_a_start_between_microseconds_is_exclusive(any_answers: Answers) -> None:
    """A query that starts a nanosecond after a commit does not return it; Beam asks so after each bundle."""
    server, partitions = any_answers.server, any_answers.partitions
    token, commits = next(
        (token, commits)
        for token, records in partitions.items()
        if token and len(commits := sorted({micros(record) for record in records if DATA in record})) > 1
    )
    moment = to_datetime(commits[0])
    after = DatetimeWithNanoseconds(
        *moment.timetuple()[:6], nanosecond=moment.microsecond * 1000 + 1, tzinfo=UTC
    )

    records = server.read(after, to_datetime(commits[1]), token)

    assert {commits[1]} == {micros(record) for record in records if DATA in record}


def heartbeats_of_one(server: Server) -> list[int]:
    """Return the heartbeats of some partition that lives long enough to send a few."""
    for _ in range(10):
        for token, (begin, _parents) in children_of(list(server.read(server.now()))).items():
            records = server.read(to_datetime(begin), None, token)
            moments = [micros(record) for record in islice(records, 6) if HEARTBEAT in record]
            if len(moments) > 1:
                return moments
    return []


def test_an_idle_partition_sends_heartbeats(any_server: Server) -> None:
    """While nothing is committed, heartbeats say how far a live query has got."""
    moments = heartbeats_of_one(any_server)
    assert len(moments) > 1
    assert moments == sorted(set(moments))
    assert moments[-1] <= from_datetime(any_server.now())


def test_exact_reads_do_not_change(any_server: Server) -> None:
    """A table at a moment is the same whenever it is read."""
    at = any_server.now()
    first = any_server.select("SELECT * FROM accounts ORDER BY account_id", read_timestamp=at)
    time.sleep(0.3)

    assert first
    assert first == any_server.select("SELECT * FROM accounts ORDER BY account_id", read_timestamp=at)


def test_information_schema_lists_the_stream(any_server: Server) -> None:
    """The stream, its option, the tables and their keys are in the information schema."""
    schema, all_tables = ("", "`all`") if any_server.is_googlesql else ("public", '"all"')
    watches_all: Any = True if any_server.is_googlesql else "YES"

    streams = any_server.select(
        "SELECT change_stream_schema, change_stream_name, "
        f"{all_tables} FROM information_schema.change_streams"
    )
    options = any_server.select(
        "SELECT option_name, option_value FROM information_schema.change_stream_options "
        f"WHERE change_stream_name = '{CHANGE_STREAM}'"
    )
    columns = any_server.select(
        "SELECT column_name, ordinal_position FROM information_schema.columns "
        f"WHERE table_schema = '{schema}' AND table_name = 'accounts' ORDER BY ordinal_position"
    )
    keys = any_server.select(
        "SELECT column_name FROM information_schema.index_columns "
        f"WHERE table_schema = '{schema}' AND table_name = 'accounts' AND index_type = 'PRIMARY_KEY'"
    )
    names = ["account_id", "owner", "balance", "opened_on", "labels"]
    expected: list[list[list[Any]]] = [
        [[schema, CHANGE_STREAM, watches_all]],
        [["value_capture_type", "NEW_ROW"]]
        + [["partition_mode", "MUTABLE_KEY_RANGE"]] * any_server.has_moving_keys,
        [[name, ordinal] for ordinal, name in enumerate(names, start=1)],
        [["account_id"]],
    ]
    assert expected == [streams, options, columns, keys]
