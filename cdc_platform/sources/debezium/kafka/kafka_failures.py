"""Failures of brokers as our own errors: of our client, and within the tasks of Spark's source."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cdc_platform.errors import AccessDenied, OffsetsLost, SourceError, SourceUnreachable

_SAID: Final = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+)Exception(: [^\n]*)?", re.ASCII)
_NO_RECORD: Final = re.compile(r"Cannot fetch record for offset [^\n]*")
_LOST: Final = re.compile(
    r"KafkaIllegalStateException: .*?\bReason:\s+(.+?)\s+with consumer group", re.DOTALL
)
"""Texts by which Spark's source reports that messages are gone (`failOnDataLoss`)."""
_DENIED: Final = re.compile(r"Authentication|Authorization", re.ASCII)
_AWAY: Final = frozenset(
    {
        *("Timeout", "Disconnect", "Network", "BrokerNotAvailable", "KafkaStorage", "OffsetNotAvailable"),
        *("LeaderNotAvailable", "NotLeaderOrFollower", "UnknownLeaderEpoch", "FencedLeaderEpoch"),
        *("UnknownTopicOrPartition", "ListenerNotFound", "ReplicaNotAvailable"),
    }
)
"""Exceptions of Kafka's that report brokers which do not answer now, or have just changed places."""


def refusal(servers: str, said: str) -> SourceError:
    """Return the error of brokers that do not let us in."""
    return AccessDenied(
        "The brokers refuse: check the login in `input.kafka.options` and that it may describe "
        f"and read the topics. Brokers: {servers}: {said}"
    )


def silence(servers: str, said: str) -> SourceError:
    """Return the error of brokers that do not answer."""
    return SourceUnreachable(
        "The brokers do not answer: check `input.kafka.bootstrap_servers`, and that each broker can be "
        f"reached under the name that it advertises. Brokers: {servers}: {said}"
    )


@contextmanager
def broker_failures(servers: str) -> Iterator[None]:
    """Raise our own error where Spark's source of Kafka fails of the brokers, in whatever wrapping.

    Raises:
        SourceUnreachable: they do not answer.
        AccessDenied: they do not let us in, or not to a topic.
        OffsetsLost: messages were deleted after the cycle was planned.
    """
    try:
        yield
    except Exception as error:
        meaning = _meaning(servers, str(error))
        if meaning is None:
            raise
        raise meaning from error


def _meaning(servers: str, text: str) -> SourceError | None:
    lost = _LOST.search(text)
    if lost is not None:
        return OffsetsLost(
            "Messages were deleted before they were read; look at the retention of the topic. Nothing was "
            "skipped. Run another cycle: it names the first offset that is left, and how to go on. "
            f"Brokers: {servers}: {' '.join(lost[1].split())}"
        )
    for match in _SAID.finditer(text):
        name, said = match[1], f"{match[1]}Exception{match[2] or ''}"
        if _DENIED.search(name):
            return refusal(servers, said)
        if name in _AWAY:
            return silence(servers, said)
    lacking = _NO_RECORD.search(text)
    return None if lacking is None else silence(servers, lacking[0])
