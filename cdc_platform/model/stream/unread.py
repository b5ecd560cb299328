"""Failed reads of files, and the pauses before the next attempts."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Final

import msgspec

from cdc_platform.model.base.stored_texts import StoredMicros, parse_stored
from cdc_platform.model.base.timestamps import MICROS_PER_S

UNREAD: Final = "unread@"
"""Prefix of a file's path under which the read progress stores its failed read."""
FORGOTTEN: Final = "forgotten"
"""Version that removes a deleted file from the read progress; if its name returns, it is a new file."""
FIRST_PAUSE_S: Final = 30
LONGEST_PAUSE_S: Final = 3600
"""The pauses after the first failed read of a file and after many; each is twice the one before."""

_MAX_DOUBLINGS: Final = 7


@dataclass(frozen=True)
class FailedRead:
    """The newest read of a file that failed.

    Args:
        version: version of the file; the failure says nothing about a rewritten file.
        micros: when the read was tried.
        error: the reason of the failure.
        tries: number of failed reads of this version.
    """

    version: str
    micros: StoredMicros
    error: str
    tries: Annotated[int, msgspec.Meta(ge=1)] = 1

    @property
    def due_micros(self) -> int:
        """The earliest time of the next automatic attempt."""
        pause_s = FIRST_PAUSE_S << min(self.tries - 1, _MAX_DOUBLINGS)
        return self.micros + min(pause_s, LONGEST_PAUSE_S) * MICROS_PER_S

    def is_due(self, clock_micros: int) -> bool:
        """Return whether the pause is over; setting the clock back does not prolong it."""
        return not self.micros <= clock_micros < self.due_micros

    def after(self, earlier: "FailedRead | None") -> "FailedRead":
        """Return this failure with the earlier failures of the same version added to `tries`."""
        counts = earlier is not None and earlier.version == self.version
        return replace(self, tries=earlier.tries + 1) if counts and earlier is not None else self

    def to_text(self) -> str:
        """Return the failed read as JSON, which `from_text` parses."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> "FailedRead":
        """Parse the text of `to_text`.

        Raises:
            ValueError, RecursionError: the text is not a failed read.
        """
        return parse_stored(text, cls)


def unread_path(path: str) -> str:
    """Return the path under which the read progress stores a file's failed read."""
    return f"{UNREAD}{path}"


def failed_reads(read_progress: Mapping[str, str]) -> dict[str, FailedRead]:
    """Return the files whose newest read failed, by path."""
    return {
        key.removeprefix(UNREAD): FailedRead.from_text(text)
        for key, text in read_progress.items()
        if key.startswith(UNREAD)
    }
