"""Status codes of gRPC and their meaning, for every API of Google."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from cdc_platform.errors import SourceError, SourceUnreachable


class RetryRule(Enum):
    """Reaction of a client to one gRPC status code."""

    RETRY = "retry"
    """The same call may succeed in a moment."""
    RETRY_IF_TRANSPORT = "retry_if_transport"
    """Only when the text says that a connection broke; otherwise it is a fault of the server."""
    FAIL = "fail"
    """The same call fails again."""


RETRY_RULES: Final = {
    "UNAVAILABLE": RetryRule.RETRY,
    # Our own deadline ended the call; the reader goes on from the last complete timestamp.
    "DEADLINE_EXCEEDED": RetryRule.RETRY,
    "ABORTED": RetryRule.RETRY,
    # Nobody on our side cancels: a proxy or a server that shuts down did.
    "CANCELLED": RetryRule.RETRY,
    "RESOURCE_EXHAUSTED": RetryRule.RETRY,
    "INTERNAL": RetryRule.RETRY_IF_TRANSPORT,
    "UNKNOWN": RetryRule.RETRY_IF_TRANSPORT,
}
"""Rule per gRPC status code; codes that are not named fail."""

_TRANSPORT_TEXTS: Final = ("RST_STREAM", "EOS on DATA frame", "GOAWAY", "Stream removed", "Connection reset")


@dataclass(frozen=True)
class StatusMeaning:
    """Meaning of a status code when the message contains the text; `advice` tells the operator what to do."""

    code: str
    text: str
    error: type[SourceError]
    advice: str


def find_meaning(
    meanings: Sequence[StatusMeaning], code: str, text: str, *, passing: str, refused: str
) -> StatusMeaning:
    """Return the first meaning that fits a status; else what can be said of any.

    Args:
        meanings: what an API's statuses mean, the first that fits counts.
        code: status code.
        text: message of the status.
        passing: advice where the same call may succeed later.
        refused: advice where it will not.
    """
    for meaning in meanings:
        if meaning.code == code and meaning.text in text:
            return meaning
    if may_pass(code, text):
        return StatusMeaning(code, text, SourceUnreachable, passing)
    return StatusMeaning(code, text, SourceError, refused)


def may_pass(code: str, text: str) -> bool:
    """Return whether the same call may succeed later."""
    rule = RETRY_RULES.get(code, RetryRule.FAIL)
    if rule is RetryRule.RETRY_IF_TRANSPORT:
        return any(part in text for part in _TRANSPORT_TEXTS)
    return rule is RetryRule.RETRY
