"""Entries of the read progress: progress in files of events, and in the order of commits."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from cdc_platform.model.base.number_texts import position_number, whole_number
from cdc_platform.model.base.stored_names import READ_PROGRESS
from cdc_platform.model.base.stored_texts import parse_stored, read_stored
from cdc_platform.model.stream.files import SourceFile

STATE: Final = "decoder state"
"""Entry of the read progress for the decoder's state, with the state as its version."""

PASSED: Final = "transactions passed"
"""The same for the transaction buffer: the place in the order of commits up to which it has passed."""


_BYTES: Final = "@"
_WAITING: Final = "+"
Kept = TypeVar("Kept")


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
            ValueError: the text has another form than that of `to_text`.
        """
        if text is None:
            return cls()
        version, rest = text.rsplit("#", 1)
        lines, read_bytes = rest.removesuffix(_WAITING).split(_BYTES)
        return cls(version, position_number(lines), position_number(read_bytes), rest.endswith(_WAITING))

    def to_text(self) -> str:
        """Return the text that `of` reads."""
        suffix = _WAITING if self.is_waiting else ""
        return f"{self.version}#{self.lines}{_BYTES}{self.read_bytes}{suffix}"

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
        truncates = json.dumps(dict(self.truncated), sort_keys=True)
        return f"{self.commit_lsn}@{self.committed_ms}#{self.ordering_key}#{truncates}"

    @classmethod
    def of(cls, text: str | None) -> "PassedUntil":
        """Parse a text of `to_text`; None means the beginning.

        Raises:
            ValueError, RecursionError: the text has another form.
        """
        if text is None:
            return cls()
        commit, ordering_key, truncates = text.split("#", 2)
        commit_lsn, committed_ms = map(whole_number, commit.split("@"))
        return cls(ordering_key, commit_lsn, parse_stored(truncates, dict[str, str]), committed_ms)
