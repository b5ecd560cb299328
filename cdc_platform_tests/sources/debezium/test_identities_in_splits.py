"""Replica identities that messages of a topic show, in splits that do not know their order."""

import json
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform_tests.sources.debezium.identity_streams import identity_streams
from cdc_platform_tests.sources.debezium.topic_logs import TopicLogs
from cdc_platform_tests.sources.debezium.written_events import settings_with
from cdc_platform_tests.strategies import share_of_profile
from cdc_platform_tests.support.debezium.connector import Connector

KAFKA: Final = KafkaInput("localhost:9092", ".*")


def identity_logs(lines: Sequence[str], splits: int, *, has_metadata: bool = True) -> TopicLogs:
    """Return logs with the messages of one table, sent one after the other."""
    logs = TopicLogs(settings_with(input=KAFKA, has_transaction_topic=has_metadata), KAFKA, splits=splits)
    for number, text in enumerate(lines):
        message = {"headers": None, **json.loads(text)}
        logs.append({**message, "timestamp": number}, 2)
    return logs


@share_of_profile(0.3)
@given(lines=identity_streams(), splits=st.integers(2, 4), has_metadata=st.booleans())
def test_splits_of_any_identities_come_to_the_same(
    lines: list[str], splits: int, *, has_metadata: bool
) -> None:
    """Whatever identities a table has, messages that are dealt out give the rows of one decoder."""
    expected, actual = (
        sorted(json.dumps(row, default=str, sort_keys=True) for row in logs.cycle())
        for logs in (identity_logs(lines, count, has_metadata=has_metadata) for count in (1, splits))
    )
    assert expected == actual


@pytest.mark.parametrize(("deletes", "rounds"), [((), 1), ((1, 9), 2)])
def test_full_is_learned_in_parallel(deletes: tuple[int, ...], rounds: int) -> None:
    """What splits depend on is known in a second round, in which they are decoded side by side again."""
    connector = Connector(is_full=True)
    for key in range(1, 31):
        connector.whole(key)
    for key in range(1, 31):
        connector.begin()
        connector.delete(key) if key in deletes else connector.update(key, n=key)
        connector.end()
    logs = identity_logs(connector.lines, 3)
    changes = [row for row in logs.cycle() if row["mod_type"] in ("UPDATE", "DELETE")]
    assert [3] * rounds == logs.dealt
    has_old_values = [bool(row["mods"][0]["old_values"]) for row in changes]
    assert len(changes) * [True] == has_old_values
    assert len(changes) == 30


@pytest.mark.parametrize("splits", [1, 3])
def test_a_key_that_an_index_made_up_stays_refused(splits: int) -> None:
    """A delete before the table became FULL names no row, also if all later events show FULL."""
    connector = Connector(is_full=True)
    for key in (0, *range(1, 13)):
        connector.whole(key)
    connector.begin()
    connector.delete(0)
    connector.end()
    for key in range(1, 13):
        connector.begin()
        connector.update(key, n=key)
        connector.end()
    rows = identity_logs(connector.lines, splits, has_metadata=False).cycle()
    (fault,) = (row["event"]["fault"] for row in rows if row["event"]["fault"])
    assert "invented key 0" in fault


def test_a_table_that_is_refused_for_a_while_is_decoded_in_order() -> None:
    """Which events come while the identity seems unusable depends on the order of splits."""
    connector = Connector(is_full=True)
    for key in (*range(6), 0):
        connector.whole(key)
    connector.begin()
    connector.delete(0)
    connector.end()
    connector.whole(*range(6, 12))
    connector.begin()
    connector.delete(3)
    connector.end()
    connector.whole(12)
    rows = []
    for splits in (1, 2, 3):
        logs = identity_logs(connector.lines, splits, has_metadata=False)
        rows.append(sorted(str(row["event"]["fault"]) + row["record_sequence"] for row in logs.cycle()))
    assert rows[:1] * 2 == rows[1:]
