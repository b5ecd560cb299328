"""Failures of brokers as the platform's errors, in its own client and in the tasks of Spark's source."""

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
"""Texts with which Spark's source reports lost messages (`failOnDataLoss`)."""
_DENIED: Final = re.compile(r"Authentication|Authorization", re.ASCII)
_AWAY: Final = frozenset(
    {
        *("Timeout", "Disconnect", "Network", "BrokerNotAvailable", "KafkaStorage", "OffsetNotAvailable"),
        *("LeaderNotAvailable", "NotLeaderOrFollower", "UnknownLeaderEpoch", "FencedLeaderEpoch"),
        *("UnknownTopicOrPartition", "ListenerNotFound", "ReplicaNotAvailable"),
    }
)
"""Kafka exceptions of brokers that do not answer now, or whose leader has just changed."""


def refusal(servers: str, reason: str) -> SourceError:
    """Return the error of brokers that deny access."""
    return AccessDenied(
        "The brokers deny access: check the login in `input.kafka.options`, and that it may describe "
        f"and read the topics. Brokers: {servers}: {reason}"
    )


def silence(servers: str, reason: str) -> SourceError:
    """Return the error of brokers that do not answer."""
    return SourceUnreachable(
        "The brokers do not answer: check `input.kafka.bootstrap_servers`, and that each broker can be "
        f"reached under the name that it advertises. Brokers: {servers}: {reason}"
    )


@contextmanager
def broker_failures(servers: str) -> Iterator[None]:
    """Translate broker failures in Spark's Kafka source into the platform's errors, however they are wrapped.

    Raises:
        SourceUnreachable: the brokers do not answer.
        AccessDenied: the brokers deny access, or access to a topic.
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
    deleted_range = _LOST.search(text)
    if deleted_range is not None:
        return OffsetsLost(
            "Messages were deleted before they were read; check the retention of the topic. Nothing was "
            "skipped. Run another cycle: it names the first available offset, and the remedy. "
            f"Brokers: {servers}: {' '.join(deleted_range[1].split())}"
        )
    for match in _SAID.finditer(text):
        name, reason = match[1], f"{match[1]}Exception{match[2] or ''}"
        if _DENIED.search(name):
            return refusal(servers, reason)
        if name in _AWAY:
            return silence(servers, reason)
    no_record = _NO_RECORD.search(text)
    return None if no_record is None else silence(servers, no_record[0])
