"""gRPC status codes and their meanings, for all Google APIs, and bounded attempts at calls."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from cdc_platform.errors import AccessDenied, PartitionStuck, SourceError, SourceUnreachable


class RetryRule(Enum):
    """Reaction of a client to one gRPC status code."""

    RETRY = "retry"
    """The same call may soon succeed."""
    RETRY_IF_PASSING = "retry_if_passing"
    """Retry only if the text reports a failure that passes; otherwise the server is at fault."""
    FAIL = "fail"
    """The same call fails again."""


RETRY_RULES: Final = {
    "UNAVAILABLE": RetryRule.RETRY,
    # Our own deadline ended the call; the reader continues from the last complete timestamp.
    "DEADLINE_EXCEEDED": RetryRule.RETRY,
    "ABORTED": RetryRule.RETRY,
    # This client never cancels: a proxy or a server that shuts down did.
    "CANCELLED": RetryRule.RETRY,
    "RESOURCE_EXHAUSTED": RetryRule.RETRY,
    "INTERNAL": RetryRule.RETRY_IF_PASSING,
    "UNKNOWN": RetryRule.RETRY_IF_PASSING,
}
"""Rule per gRPC status code; codes that are not named fail."""

_PASSING_TEXTS: Final = (
    *("RST_STREAM", "EOS on DATA frame", "GOAWAY", "Stream removed", "Connection reset"),
    "Authentication backend internal server error",
)
"""Texts of broken connections, and of the service that checks credentials: Google's clients retry them."""


_OTHER_SERVER_TEXTS: Final = ("ethod not found", "unknown service", "Received http2 header with status")
"""Texts with UNIMPLEMENTED from servers of other APIs, in several languages, and from web servers."""


@dataclass(frozen=True)
class StatusMeaning:
    """Meaning of a status code with a text in its message; `advice` states what the operator should do."""

    code: str
    text: str
    error: type[SourceError]
    advice: str


def find_meaning(
    meanings: Sequence[StatusMeaning], code: str, text: str, *, transient: str, permanent: str
) -> StatusMeaning:
    """Return the first meaning that matches a status, else a general one.

    Args:
        meanings: the meanings of an API's statuses; the first match counts.
        code: status code.
        text: message of the status.
        transient: general advice if the same call may succeed later.
        permanent: general advice if it will not.
    """
    for meaning in meanings:
        if meaning.code == code and meaning.text in text:
            return meaning
    if may_pass(code, text):
        return StatusMeaning(code, text, SourceUnreachable, transient)
    return StatusMeaning(code, text, SourceError, permanent)


def error_of_call(
    error: Exception, title: str, host_setting: str, of_status: Callable[[str, str], SourceError]
) -> SourceError:
    """Return the platform's error for the error of a call of a Google API.

    Args:
        error: the error of the API's client.
        title: name of what is read, for messages.
        host_setting: the setting that names an emulator.
        of_status: returns the error for the code and the message of a status.
    """
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError, TransportError

    if isinstance(error, TransportError):
        # The credentials' server did not answer; nothing is wrong with the credentials.
        return of_status("UNAVAILABLE", str(error))
    if isinstance(error, GoogleAuthError):
        advice = f"Provide application default credentials, or set `{host_setting}`"
        return AccessDenied(f"No credentials for {title}. {advice}. Google said: {error}")
    if not isinstance(error, GoogleAPICallError):
        return SourceError(f"Cannot read {title}: {type(error).__name__}: {error}")
    code = error.grpc_status_code.name if error.grpc_status_code else "UNKNOWN"
    text = str(error.message)
    if code == "UNIMPLEMENTED" and any(part in text for part in _OTHER_SERVER_TEXTS):
        advice = f"Check `{host_setting}`, and the proxies on the way"
        return SourceUnreachable(
            f"Cannot read {title}: the server that answers is not that of its API, or is too old. {advice}. "
            f"It said {code}: {text}"
        )
    return of_status(code, text)


_LOCAL_CHANNEL_OPTIONS: Final = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # An emulator is on this machine or near it, so proxy settings of the environment do not apply.
    ("grpc.enable_http_proxy", 0),
    # One channel per client: shared ones keep the back-off of a server that was down before.
    ("grpc.use_local_subchannel_pool", 1),
)


def local_channel(host: str) -> Any:
    """Return the channel to an emulator, without encryption and credentials."""
    import grpc  # type: ignore[import-untyped] # ships no types

    return grpc.insecure_channel(host, options=list(_LOCAL_CHANNEL_OPTIONS))


def may_pass(code: str, text: str) -> bool:
    """Return whether the same call may succeed later."""
    rule = RETRY_RULES.get(code, RetryRule.FAIL)
    if rule is RetryRule.RETRY_IF_PASSING:
        return any(part in text for part in _PASSING_TEXTS)
    return rule is RetryRule.RETRY


MAX_RESTARTS: Final = 1
"""Number of times that a read queries a silent partition again; the next cycle starts over."""


@dataclass
class Retries:
    """Counts successive failures; progress resets the count, and too many failures end the read.

    A silent partition is queried again once per read, whether it progresses or not.
    """

    max_attempts: int
    backoff_initial_s: float
    backoff_max_s: float
    sleep: Callable[[float], None] = time.sleep
    failures: int = field(default=0, init=False)
    silences: int = field(default=0, init=False)

    def reset(self) -> None:
        """Reset the counts: the source answered."""
        self.failures = 0

    def wait_after(self, error: SourceError) -> None:
        """Wait before the next attempt.

        Raises:
            SourceError: the error itself, if a retry cannot help or the attempts are used up.
        """
        self.failures += 1
        self.silences += isinstance(error, PartitionStuck)
        if not error.retryable or self.failures >= self.max_attempts or self.silences > MAX_RESTARTS:
            raise error
        longest_s = backoff_s(self.failures, self.backoff_initial_s, self.backoff_max_s)
        # Jitter keeps many windows from retrying at the same time.
        self.sleep(longest_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, guards nothing


def backoff_s(failures: int, initial_s: float, max_s: float) -> float:
    """Return the seconds to wait after a number of failures: `initial_s` doubled by each further failure."""
    # After days of failures, 2 to the power of their number would overflow.
    return min(max_s, initial_s * 2.0 ** min(failures - 1, 100))
