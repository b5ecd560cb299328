"""The messages that a cycle reads: shares of what is new, never past lost ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.errors import OffsetsLost, SettingError, SourceNotFound
from cdc_platform.sources.debezium.kafka.topic_partition import NO_ID, TopicPartition
from cdc_platform.sources.debezium.kafka.topic_ranges import (
    TopicProgress,
    TopicRange,
    first_left,
    plan_ranges,
)
from cdc_platform.sources.debezium.kafka.topics_reader import deal_ranges
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput

SETTINGS: Final = KafkaInput("localhost:9092", "shop[.].*", max_messages=100)
FIRST: Final = TopicPartition("shop.public.a/b", 0, "ID", 3, 40)
SECOND: Final = TopicPartition("shop.public.a/b", 1, "ID", 0, 10)
NOW_MILLIS: Final = 2_000


def read_progress(*read: tuple[TopicPartition, int, int]) -> Mapping[str, str]:
    """Return a read_progress in which partitions have been read up to a next and a seen offset."""
    entries = {
        partition.origin: TopicProgress(partition.topic_id, next_offset, seen).to_text()
        for partition, next_offset, seen in read
    }
    return {"decoder state": "{}", "other.topic/0": "ID#1#1", **entries}


def planned(
    partitions: Sequence[TopicPartition],
    progress: Mapping[str, str],
    settings: KafkaInput,
    moments: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> tuple[TopicRange, ...]:
    """Return the planned ranges of partitions whose messages were sent at moments; without any, at none."""

    def offsets_after(millis: int) -> Mapping[str, int]:
        offsets = {
            origin: [n for n, at in enumerate(some) if at > millis] for origin, some in moments.items()
        }
        return {origin: later[0] for origin, later in offsets.items() if later}

    return plan_ranges(partitions, progress, settings, offsets_after, NOW_MILLIS)


def span(partition: TopicPartition, start: int, seen: int, end_exclusive: int) -> TopicRange:
    """Return a range of a partition."""
    return TopicRange(partition.topic, partition.partition, partition.topic_id, start, seen, end_exclusive)


def test_a_stream_begins_with_the_first_messages_that_there_are() -> None:
    """Without a read progress each partition is read from its first message on."""
    expected = (span(FIRST, 3, 3, 40), span(SECOND, 0, 0, 10))
    assert expected == planned([FIRST, SECOND], {}, SETTINGS)


def test_what_waits_is_read_again_with_what_is_new() -> None:
    """One partition has news, the other one messages of a transaction that was not whole."""
    progress = read_progress((FIRST, 30, 30), (SECOND, 4, 10))
    expected = (span(FIRST, 30, 30, 40), span(SECOND, 4, 10, 10))
    assert expected == planned([FIRST, SECOND], progress, SETTINGS)


def test_without_news_nothing_is_read() -> None:
    """Messages that wait are not read again until others come."""
    progress = read_progress((FIRST, 30, 40), (SECOND, 4, 10))
    assert planned([FIRST, SECOND], progress, SETTINGS) == ()


def test_a_backlog_is_read_in_shares() -> None:
    """Partitions share what a cycle may read by what they have, so that all advance together.

    The first messages that it leaves are known.
    """
    expected = (span(FIRST, 3, 3, 21), span(SECOND, 0, 0, 5))
    ranges = planned([FIRST, SECOND], {}, replace(SETTINGS, max_messages=24))
    assert expected == ranges
    assert first_left([FIRST, SECOND], ranges) == (span(FIRST, 21, 21, 22), span(SECOND, 5, 5, 6))
    assert first_left([FIRST, SECOND], planned([FIRST, SECOND], {}, SETTINGS)) == ()


def test_a_backlog_is_read_up_to_one_moment() -> None:
    """A partition that was added later is not read before what was sent to the others until then."""
    first, second = replace(FIRST, earliest=0, end_exclusive=90), replace(SECOND, end_exclusive=30)
    moments = {first.origin: range(1_000, 1_090), second.origin: [1_060] * 10 + [1_080] * 20}
    progress: dict[str, str] = {}
    ends = []
    while ranges := planned([first, second], progress, replace(SETTINGS, max_messages=40), moments):
        assert sum(item.new_messages for item in ranges) <= 40
        progress |= read_progress(*((tp, end, end) for tp in (first, second) for end in ends_of(ranges, tp)))
        left = {item.origin for item in first_left([first, second], ranges)}
        ends.append((*ends_of(ranges, first), *ends_of(ranges, second)))
        unread = {
            tp.origin for tp in (first, second) for end in ends_of(ranges, tp) if end < tp.end_exclusive
        }
        assert unread == left
    assert all(moments[first.origin][a - 1] < moments[second.origin][b] for a, b, *_ in ends if b < 30)
    assert len(ends) > 3
    assert ends[-1] == (90, 30)


def ends_of(ranges: Sequence[TopicRange], partition: TopicPartition) -> list[int]:
    """Return the end of a partition's range, if there is one."""
    return [item.end_exclusive for item in ranges if item.origin == partition.origin]


def test_messages_of_one_moment_are_read_in_shares() -> None:
    """They may be more than a cycle reads."""
    moments = {FIRST.origin: [7] * 40, SECOND.origin: [7] * 10}
    ranges = planned([FIRST, SECOND], {}, replace(SETTINGS, max_messages=24), moments)
    assert (span(FIRST, 3, 3, 21), span(SECOND, 0, 0, 5)) == ranges


def test_a_message_of_the_future_holds_no_partition_back() -> None:
    """Its clock was wrong; the other partition always has news, and is not read alone for ever."""
    first = replace(FIRST, earliest=0, end_exclusive=90)
    moments = {first.origin: [2**41, *range(1_000, 1_089)], SECOND.origin: [1_500] * 10}
    progress = read_progress((first, 1, 1), (SECOND, 9, 9))
    ranges = planned([first, SECOND], progress, replace(SETTINGS, max_messages=40), moments)
    assert (span(first, 1, 1, 41), span(SECOND, 9, 9, 9)) == ranges


def test_a_new_partition_of_a_known_topic_is_read_from_its_beginning() -> None:
    """A partition that is added later begins at 0, and earlier losses are reported."""
    progress = read_progress((FIRST, 40, 40))
    assert planned([FIRST, SECOND], progress, SETTINGS) == (span(SECOND, 0, 0, 10),)
    with pytest.raises(OffsetsLost, match="next one has offset 0, the first available one 2"):
        planned([FIRST, replace(SECOND, earliest=2)], progress, SETTINGS)


@pytest.mark.parametrize(
    ("partitions", "words"),
    [
        (
            [replace(FIRST, earliest=31)],
            "partition 0, were deleted .* offset 30, .* available one 31, so 1 offsets",
        ),
        ([replace(FIRST, topic_id="NEW")], "was deleted and recreated"),
        ([replace(FIRST, end_exclusive=20)], "ends at offset 20, before the next message to read, 30"),
        ([SECOND], "The partition shop.public.a/b/0 is gone"),
    ],
)
def test_lost_messages_are_reported(partitions: list[TopicPartition], words: str) -> None:
    """Messages that were deleted unread are reported."""
    with pytest.raises(OffsetsLost, match=words):
        planned(partitions, read_progress((FIRST, 30, 30)), SETTINGS)


@pytest.mark.parametrize(
    ("partition", "start"),
    [
        (replace(FIRST, earliest=31), 31),
        (replace(FIRST, topic_id="NEW"), 3),
        (replace(FIRST, end_exclusive=20), 15),
    ],
)
def test_what_is_gone_is_given_up_on_demand(partition: TopicPartition, start: int) -> None:
    """A start offset says from where on to read; what has been read beyond it stays read."""
    settings = replace(SETTINGS, start_offsets={FIRST.origin: start})
    expected = (span(partition, start, start, partition.end_exclusive),)
    assert expected == planned([partition], read_progress((FIRST, 30, 30)), settings)
    later = read_progress((partition, partition.end_exclusive, partition.end_exclusive))
    assert planned([partition], later, settings) == ()


def test_a_topic_that_is_recreated_with_fewer_partitions_is_given_up_at_once() -> None:
    """One error names the offsets of all partitions that are there; the others stay given up afterwards."""
    old = read_progress((FIRST, 30, 30), (SECOND, 4, 4), (replace(SECOND, partition=2), 5, 5))
    first, second = (replace(tp, topic_id="NEW", earliest=0, end_exclusive=3) for tp in (FIRST, SECOND))
    named = r"1 more partitions are lost.*`\{shop.public.a/b/0: 0, shop.public.a/b/1: 0\}`"
    with pytest.raises(OffsetsLost, match=f"was deleted and recreated.*{named}"):
        planned([first, second], old, SETTINGS)
    settings = replace(SETTINGS, start_offsets={first.origin: 0, second.origin: 0})
    expected = (span(first, 0, 0, 3), span(second, 0, 0, 3))
    assert expected == planned([first, second], old, settings)
    read = {**old, **read_progress((first, 3, 3), (second, 3, 3))}
    assert planned([first, second], read, SETTINGS) == ()
    with pytest.raises(OffsetsLost, match=r"a/b/2 is gone.*If it was recreated with fewer partitions"):
        planned([first, second], read_progress((replace(SECOND, partition=2), 5, 5)), SETTINGS)


def test_without_identifiers_start_offsets_of_all_partitions_show_that_a_topic_is_recreated() -> None:
    """Brokers before 2.8 have none, so a topic with fewer partitions could never be continued."""
    first, second, third = (
        replace(FIRST, topic_id=NO_ID, partition=number, earliest=0) for number in range(3)
    )
    old = read_progress((first, 30, 30), (second, 30, 30), (third, 5, 5))
    left = [replace(tp, end_exclusive=3) for tp in (first, second)]
    for origins in ([], [first.origin]):
        settings = replace(SETTINGS, start_offsets=dict.fromkeys(origins, 0))
        with pytest.raises(OffsetsLost, match=r"a/b/2 is gone.*specify the next offset of each"):
            planned(left, old, settings)
    settings = replace(SETTINGS, start_offsets={first.origin: 0, second.origin: 0})
    assert planned(left, old, settings) == tuple(span(tp, 0, 0, 3) for tp in left)


def test_no_topic_is_an_error() -> None:
    """A pattern that matches nothing is a mistake, and not a stream without news."""
    with pytest.raises(SourceNotFound, match="topics_pattern"):
        planned([], {}, SETTINGS)


@pytest.mark.parametrize(
    ("setting", "fields"),
    [
        ("topics_pattern", {"topics_pattern": "*"}),
        ("max_messages", {"max_messages": 0}),
        ("transaction_patience_s", {"transaction_patience_s": 0.0}),
        ("client.group.id", {"client": {"group.id": ""}}),
        ("client.auto.offset.reset", {"client": {"auto.offset.reset": "latest"}}),
        ("start_offsets.shop", {"start_offsets": {"shop": 1}}),
        ("start_offsets.shop/0", {"start_offsets": {"shop/0": -1}}),
    ],
)
def test_settings_are_checked(setting: str, fields: dict[str, Any]) -> None:
    """A setting that cannot be used is named."""
    with pytest.raises(SettingError) as raised:
        replace(SETTINGS, **fields)
    assert f"input.kafka.{setting}" == raised.value.setting


def test_a_login_reaches_the_client_and_no_output() -> None:
    """The client gets its properties with the brokers; none of them is in a text."""
    login = {"security.protocol": "SASL_SSL", "sasl.username": "me", "sasl.password": "secret"}
    settings = replace(SETTINGS, client=login)
    assert settings.client_properties() == {
        **login,
        "bootstrap.servers": "localhost:9092",
        "isolation.level": "read_committed",
    }
    assert "secret" not in repr(settings)


@given(
    sizes=st.lists(st.integers(0, 50), min_size=1, max_size=6),
    max_tasks=st.integers(1, 8),
)
def test_tasks_share_the_offsets(sizes: list[int], max_tasks: int) -> None:
    """Each offset is in one task, in the order of its partition, and no task has more than its share."""
    ranges = [TopicRange("t", number, "", 7, 7, 7 + size) for number, size in enumerate(sizes)]
    tasks = deal_ranges(ranges, max_tasks)
    dealt = [
        [(item.partition, offset) for item in task for offset in range(item.start, item.end_exclusive)]
        for task in tasks
    ]
    expected = [(number, offset) for number, size in enumerate(sizes) for offset in range(7, 7 + size)]
    assert expected == list(chain.from_iterable(dealt))
    assert len(tasks) <= max_tasks
    assert max(map(len, dealt)) <= -(-sum(sizes) // max_tasks)
    assert all(len({item.partition for item in task}) == len(task) for task in tasks)
