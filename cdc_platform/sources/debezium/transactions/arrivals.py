"""Input and output of the transaction buffer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc_platform.model.base.number_texts import whole_number
from cdc_platform.model.base.stored_texts import parse_stored
from cdc_platform.model.stream.events import SourceMessage
from cdc_platform.model.stream.file_reports import Waiting
from cdc_platform.sources.debezium.rows.decoder import Decoded
from cdc_platform.sources.event_batches import Released


@dataclass(frozen=True, slots=True)
class Arrival:
    """Content of one message, and its place: which file or partition, and how far in it.

    ``micros`` is when it was sent, where messages of several partitions come in one stream.
    """

    event: Decoded
    origin: str
    position: int
    micros: int = 0


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


@dataclass(frozen=True, slots=True)
class Passed:
    """Changes that may enter the log, each with its origin.

    ``resume`` tells per origin from which position on it must be read again; the others have been read.
    ``until`` is how far transactions have passed, ever.
    ``waiting`` are the transactions that hold back what comes after them.
    ``again_since_micros`` is when the first was committed of those that, by their positions, have passed
    before; None where there are none.
    """

    events: tuple[tuple[Released, str], ...]
    resume: Mapping[str, int]
    until: PassedUntil
    messages: tuple[tuple[SourceMessage, str], ...] = ()
    waiting: tuple[Waiting, ...] = ()
    again_since_micros: int | None = None
