"""Files that could not be read: when they are tried again, and what is known of them meanwhile."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

from cdc_platform.model.base.stored_texts import parse_stored
from cdc_platform.model.base.timestamps import is_moment

UNREAD: Final = "unread@"
"""Begins the path under which the read progress has a file's failed read; the rest is the file's path."""
GONE: Final = "gone"
"""Version, in a read progress, of a file that could not be read and was never read, and is no more."""
FIRST_PAUSE_S: Final = 30
LONGEST_PAUSE_S: Final = 3600
"""Right after a file could not be read, and after many times. Pauses double in between."""

_MOMENT: Final = re.compile(r"\d{1,17}", re.ASCII)
_MOST_DOUBLINGS: Final = 7


@dataclass(frozen=True)
class FailedRead:
    """The newest read of a file that failed.

    Args:
        version: the file's; once it is rewritten, nothing is known of it.
        micros: when it was tried.
        error: why it failed.
        tries: how often this version has been tried.
    """

    version: str
    micros: int
    error: str
    tries: int = 1

    @property
    def due_micros(self) -> int:
        """From when on it is tried again without being asked for."""
        pause_s = FIRST_PAUSE_S << min(self.tries - 1, _MOST_DOUBLINGS)
        return self.micros + min(pause_s, LONGEST_PAUSE_S) * 1_000_000

    def is_due(self, clock_micros: int) -> bool:
        """Return whether the pause is over; a clock that was set back since does not prolong it."""
        return not self.micros <= clock_micros < self.due_micros

    def after(self, earlier: "FailedRead | None") -> "FailedRead":
        """Return this failure with the count of those before it."""
        counts = earlier is not None and earlier.version == self.version
        return replace(self, tries=earlier.tries + 1) if counts and earlier is not None else self

    def to_text(self) -> str:
        """Return it as text for `from_text`."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> "FailedRead":
        """Return the failure of a text that `to_text` made.

        Raises:
            ValueError, RecursionError: the text is none.
        """
        failure = parse_stored(text, cls)
        if failure.tries < 1 or not is_moment(failure.micros):
            raise ValueError(f"{failure.micros} and {failure.tries} are no moment and no count of tries")
        return failure

    @classmethod
    def of_report(cls, reported_version: str, error: str) -> "FailedRead | None":
        """Return what the report on a file tells; None where it does not say when the file was tried."""
        moment, _, version = reported_version.partition(" ")
        if not (version and _MOMENT.fullmatch(moment)):
            return None
        return cls(version, int(moment), error)

    @property
    def reported_version(self) -> str:
        """The report's substitute for the version that would have been read."""
        return f"{self.micros} {self.version}"


def unread_path(path: str) -> str:
    """Return under which path the read progress has a file's failed read."""
    return f"{UNREAD}{path}"


def failed_reads(read_progress: Mapping[str, str]) -> dict[str, FailedRead]:
    """Return the files whose newest read failed, by path."""
    return {
        key.removeprefix(UNREAD): FailedRead.from_text(text)
        for key, text in read_progress.items()
        if key.startswith(UNREAD)
    }
