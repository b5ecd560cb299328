"""Progress in the read progress: in files of events, and in the order of commits."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from cdc_platform.model.base.number_texts import position_number, whole_number
from cdc_platform.model.base.stored_texts import READ_PROGRESS_TABLE, parse_stored, read_stored
from cdc_platform.model.stream.files import SourceFile

STATE: Final = "decoder state"
"""Entry of the read progress besides files: the decoder's state, as its version."""

PASSED: Final = "transactions passed"
"""The same for the transaction buffer: up to which place in the order of commits transactions have passed."""


_BYTES: Final = "@"
_WAITING: Final = "+"
Kept = TypeVar("Kept")


def read_progress_of(progress: Mapping[str, str], name: str, parse: Callable[[str | None], Kept]) -> Kept:
    """Return what the read progress has of a file or partition, or of a state.

    Args:
        progress: the read progress.
        name: what is asked for.
        parse: makes something of a text, and of None where there is none.

    Raises:
        LakeDamaged: the text is none that a cycle writes.
    """
    if name not in progress:
        return parse(None)
    return read_stored(parse, progress[name], READ_PROGRESS_TABLE, f"row `{name}`")


@dataclass(frozen=True)
class FileProgress:
    """Progress in a version of a file, which may grow, but not shrink.

    Args:
        version: of the file when it was read; empty where a cycle has stopped within it.
        lines: so many have entered the log.
        read_bytes: the byte after the end of the last of them; 0 for a gzip, which appears whole.
        is_waiting: whether there are more lines, which wait for messages that are still to come.
    """

    version: str | None = None
    lines: int = 0
    read_bytes: int = 0
    is_waiting: bool = False

    @classmethod
    def of(cls, text: str | None) -> "FileProgress":
        """Return the progress of a text of the read progress; None is that of a file that nobody has read.

        Raises:
            ValueError: the text is none that `to_text` makes.
        """
        if text is None:
            return cls()
        version, read = text.rsplit("#", 1)
        lines, read_bytes = read.removesuffix(_WAITING).split(_BYTES)
        return cls(version, position_number(lines), position_number(read_bytes), read.endswith(_WAITING))

    def to_text(self) -> str:
        """Return the text that `of` reads."""
        waiting = _WAITING if self.is_waiting else ""
        return f"{self.version}#{self.lines}{_BYTES}{self.read_bytes}{waiting}"

    def lacks(self, file: SourceFile) -> bool:
        """Return whether the file has been written since."""
        return self.version != file.version


@dataclass(frozen=True, slots=True)
class PassedUntil:
    """The last transaction that has passed: ordering key of its last event, and position of its commit.

    ``truncated`` has the ordering key of the last truncate that has passed of each table that has had one.
    ``committed_ms`` is when the newest of those that have passed was committed; 0 where nothing shows.
    """

    ordering_key: str = ""
    commit_lsn: int = -1
    truncated: Mapping[str, str] = field(default_factory=dict)
    committed_ms: int = 0

    def to_text(self) -> str:
        """Return the text that `of` reads."""
        truncated = json.dumps(dict(self.truncated), sort_keys=True)
        return f"{self.commit_lsn}@{self.committed_ms}#{self.ordering_key}#{truncated}"

    @classmethod
    def of(cls, text: str | None) -> "PassedUntil":
        """Return what `to_text` made a text of; None is the beginning.

        Raises:
            ValueError, RecursionError: the text is none.
        """
        if text is None:
            return cls()
        commit, ordering_key, truncated = text.split("#", 2)
        commit_lsn, committed_ms = map(whole_number, commit.split("@"))
        return cls(ordering_key, commit_lsn, parse_stored(truncated, dict[str, str]), committed_ms)
