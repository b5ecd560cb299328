"""Entries of the read progress: progress in files of events, and in the order of commits."""

import json
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Annotated, Final, TypeVar

import msgspec

from cdc_platform.model.base.stored_names import READ_PROGRESS
from cdc_platform.model.base.stored_texts import parse_stored, read_stored
from cdc_platform.model.stream.files import SourceFile

STATE: Final = "decoder state"
"""Entry of the read progress for the decoder's state, with the state as its version."""

PASSED: Final = "transactions passed"
"""The same for the transaction buffer: the place in the order of commits up to which it has passed."""


Kept = TypeVar("Kept")
Place = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A position or a count in a stored text."""


def read_progress_of(progress: Mapping[str, str], name: str, parse: Callable[[str | None], Kept]) -> Kept:
    """Return the parsed entry of a file, partition or state from the read progress.

    Args:
        progress: the read progress.
        name: name of the entry.
        parse: parses the text of an entry, or None without an entry.

    Raises:
        LakeDamaged: the text has another form than those that cycles write.
    """
    if name not in progress:
        return parse(None)
    return read_stored(parse, progress[name], READ_PROGRESS, f"row `{name}`")


@dataclass(frozen=True)
class FileProgress:
    """Progress in a version of a file, which may grow but not shrink.

    Args:
        version: version of the file when it was read; empty if a cycle stopped within it.
        lines: number of lines that have entered the log.
        read_bytes: offset after the last of them; 0 for a gzip, which appears as a whole.
        is_waiting: whether more lines wait for later messages.
    """

    version: str | None = None
    lines: int = 0
    read_bytes: int = 0
    is_waiting: bool = False

    @classmethod
    def of(cls, text: str | None) -> "FileProgress":
        """Parse the progress from a text of the read progress; None means an unread file.

        Raises:
            ValueError, RecursionError: the text has another form.
        """
        if text is None:
            return cls()
        return cls(*parse_stored(text, tuple[str, Place, Place, bool]))

    def to_text(self) -> str:
        """Return the text that `of` reads."""
        return json.dumps(astuple(self))

    def lacks(self, file: SourceFile) -> bool:
        """Return whether the file has changed since."""
        return self.version != file.version


@dataclass(frozen=True, slots=True)
class PassedUntil:
    """The last transaction that has passed: ordering key of its last event, and position of its commit.

    ``truncated`` has, for each table, the ordering key of the last truncate that has passed.
    ``committed_ms`` is the commit time of the newest transaction that has passed; 0 if unknown.
    """

    ordering_key: str = ""
    commit_lsn: int = -1
    truncated: Mapping[str, str] = field(default_factory=dict)
    committed_ms: int = 0

    def to_text(self) -> str:
        """Return the text that `of` reads."""
        return json.dumps(astuple(self), sort_keys=True)

    @classmethod
    def of(cls, text: str | None) -> "PassedUntil":
        """Parse a text of `to_text`; None means the beginning.

        Raises:
            ValueError, RecursionError: the text has another form.
        """
        if text is None:
            return cls()
        return cls(*parse_stored(text, tuple[str, int, dict[str, str], int]))
