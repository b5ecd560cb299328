"""Behaviour of a server whose change stream has mutable key ranges, as the API's messages document it."""

from collections import defaultdict
from datetime import timedelta
from itertools import groupby, pairwise
from typing import Final

import pytest

from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.stream.ordering_key import record_order
from cdc_platform_tests.server_fixtures import Answers
from cdc_platform_tests.sources.spanner.servers import HEARTBEAT, START, Record, children_of, micros

pytestmark = pytest.mark.integration

END: Final = "partition_end_record"
EVENT: Final = "partition_event_record"


def fields_of(record: Record) -> Record:
    """Return the fields of a record of any kind."""
    fields: Record = next(iter(record.values()))
    return fields


def test_first_query_starts_the_partitions(moving: Answers) -> None:
    """The query without a token names the partitions of its start, in start records only, and ends."""
    records = moving.partitions[""]
    assert {START} == {kind for record in records for kind in record}
    assert {moving.server.created_micros} == {micros(record) for record in records}
    assert len(records) < len(children_of(records)) or len(children_of(records)) == 1


def test_a_query_needs_an_end_that_is_near(moving: Answers) -> None:
    """A query without an end, or with one more than half an hour after its start, is refused."""
    server, start = moving.server, to_datetime(moving.server.created_micros)
    sql = server.stream_sql().replace("@p2" if server.is_googlesql else "$2", "NULL")
    refused = server.refusal(start, start, None, sql=sql)
    assert refused.code == "INVALID_ARGUMENT"
    assert refused.text.startswith("end_timestamp must not be null.")
    assert server.refusal(start, start + timedelta(minutes=30, microseconds=1)).code == "OUT_OF_RANGE"
    assert list(server.read(start, start + timedelta(minutes=30)))


def test_an_end_is_the_last_record_of_its_partition(moving: Answers) -> None:
    """A partition that ended has nothing after its end, names itself, and is never started again."""
    ended = {token: records for token, records in moving.partitions.items() if END in records[-1]}
    assert ended
    for token, records in ended.items():
        assert token == records[-1][END]["partition_token"]
        assert not any(END in record for record in records[:-1])
    refused = moving.server.refusal(to_datetime(micros(records[-1]) + 1), None, token)
    assert refused.code == "OUT_OF_RANGE"


def test_a_partition_starts_while_the_one_that_announces_it_continues(moving: Answers) -> None:
    """Each partition is started by one record, and may be read from that record's timestamp on."""
    starts = [child for records in moving.partitions.values() for child in children_of(records).items()]
    begun = {token: start for token, (start, _) in starts}
    assert len(starts) == len(begun)
    assert {token for token in begun if begun[token] <= moving.end_micros} == set(moving.partitions) - {""}
    for token, records in moving.partitions.items():
        assert all(begun.get(token, 0) <= micros(record) for record in records if token)
    announcers = [records for token, records in moving.partitions.items() if token and children_of(records)]
    assert any(START not in records[-1] for records in announcers)


def test_both_sides_report_a_move(moving: Answers) -> None:
    """A move out of a partition at a timestamp is a move into another one at that timestamp."""
    moves = defaultdict(set)
    for token, records in moving.partitions.items():
        for record in records:
            if EVENT in record:
                fields = record[EVENT]
                assert token == fields["partition_token"]
                for event in fields["move_in_events"]:
                    moves["in"].add((micros(record), event["source_partition_token"], token))
                for event in fields["move_out_events"]:
                    moves["out"].add((micros(record), token, event["destination_partition_token"]))
    assert moves["in"]
    assert moves["in"] == moves["out"]


def test_record_sequences_are_one_order_of_all_kinds(moving: Answers) -> None:
    """Within a timestamp of a partition sequences rise, across all kinds of records."""
    for records in moving.partitions.values():
        others = [record for record in records if HEARTBEAT not in record]
        for _, same in groupby(others, key=micros):
            orders = [record_order(fields_of(record)["record_sequence"]) for record in same]
            assert all(order < later for order, later in pairwise(orders))
