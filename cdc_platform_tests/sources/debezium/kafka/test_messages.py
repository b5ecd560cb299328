"""Messages in the order of arrival."""

from random import Random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.sources.debezium.kafka.messages import MESSAGES, in_order

SENT = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.one_of(st.none(), st.integers(0, 9))), max_size=30
)


@given(sent=SENT, order=st.randoms(use_true_random=False))
def test_a_partition_keeps_its_order(sent: list[tuple[str, int, int | None]], order: Random) -> None:
    """Messages come in the order of their times, but none before an earlier one of its partition."""
    rows = [
        {"topic": topic, "partition": number, "offset": offset, "micros": micros}
        for offset, (topic, number, micros) in enumerate(sent)
    ]
    order.shuffle(rows)
    messages = in_order(pa.Table.from_pylist(rows, MESSAGES).to_batches(max_chunksize=3))
    latest: dict[tuple[str, int], int] = {}
    expected = []
    for offset, (topic, number, micros) in enumerate(sent):
        latest[topic, number] = max(micros or 0, latest.get((topic, number), 0))
        expected.append((latest[topic, number], topic, number, offset))
    assert [place for _, *place in sorted(expected)] == [
        [message.topic, message.partition, message.offset] for message in messages
    ]
