"""Up to which place in the order of commits transactions have passed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc_platform.model.base.number_texts import whole_number
from cdc_platform.model.base.stored_texts import parse_stored


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
