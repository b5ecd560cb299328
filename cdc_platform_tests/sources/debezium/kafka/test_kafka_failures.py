"""Spark's errors of brokers that fail its tasks, as our own errors."""

import pytest

from cdc_platform.errors import AccessDenied, OffsetsLost, SourceError, SourceUnreachable
from cdc_platform.sources.debezium.kafka.kafka_failures import broker_failures

ERRORS = "org.apache.kafka.common.errors"
LOST = """Some data may have been lost because they are not available in Kafka any more;
either the data was aged out by Kafka or the topic may have been deleted before all the data in the
topic was processed.
If you don't want your streaming query to fail on such cases, set the source option failOnDataLoss to false.
Reason: Could not read records in offset [0, 9) for topic partition shop.orders-0
with consumer group spark-kafka-source-1-executor"""
FRAME = "\n\tat org.apache.kafka.common.internals.KafkaFutureImpl.get(KafkaFutureImpl.java:165)"


@pytest.mark.parametrize(
    ("text", "expected", "message"),
    [
        (f"{ERRORS}.TimeoutException: Timed out. Call: listNodes{FRAME}", SourceUnreachable, "Timed out"),
        (f"Job aborted: {ERRORS}.DisconnectException{FRAME}", SourceUnreachable, "DisconnectException"),
        ("Cannot fetch record for offset 5 in 120000 milliseconds", SourceUnreachable, "offset 5"),
        (f"{ERRORS}.SaslAuthenticationException: no such user{FRAME}", AccessDenied, "no such user"),
        (
            f"Caused by: org.apache.spark.sql.kafka010.KafkaIllegalStateException: {LOST}{FRAME}",
            OffsetsLost,
            "partition shop.orders-0$",
        ),
    ],
)
def test_brokers_that_fail_tasks_are_named(text: str, expected: type[SourceError], message: str) -> None:
    """The error says what they did in a line, and whether another try may help."""
    with (
        pytest.raises(expected, match=f"Brokers: here:9092: .*{message}") as raised,
        broker_failures("here:9092"),
    ):
        raise RuntimeError(text)
    assert FRAME not in str(raised.value)


@pytest.mark.parametrize("text", [f"something else{FRAME}", f"{ERRORS}.RecordTooLargeException: 9"])
def test_other_failures_stay_what_they_are(text: str) -> None:
    """Nothing is blamed on brokers that they have not done."""
    with pytest.raises(RuntimeError, match=text.partition("\n")[0]), broker_failures("here:9092"):
        raise RuntimeError(text)
