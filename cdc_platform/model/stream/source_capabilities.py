"""Guarantees of a source about its changes, which its settings determine.

The steps of a cycle supply the guarantees that are missing.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from os.path import realpath
from pathlib import Path
from typing import Any, Final, Self

from cdc_platform.model.base.declared_settings import read_settings, to_json
from cdc_platform.model.base.timestamps import MICROS_PER_S
from cdc_platform.model.schema.schema_policy import SchemaPolicy
from cdc_platform.model.schema.table_schema import TableSchema

_ALIASES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


@dataclass(frozen=True)
class SourceCapabilities:
    """The guarantees of one kind of source.

    Args:
        delivers_events: whether it delivers events, in files or topics, instead of answering queries up to
            a moment of its own clock. The position of a cut is then the time of the cycle that read its
            last event.
        keeps_transactions: whether each record states the number of records in its transaction; the log then
            holds whole transactions.
        comes_in_order: whether the changes of a row always arrive in order. If not, each row of the lake
            stores the ordering key of its newest change, and deletions leave deletion markers.
        trusts_inserts: whether a row that the source calls inserted certainly did not exist before.
        can_be_compared: whether the source can return its schema and its rows as of a cut.
        can_be_copied: whether its tables can be copied as of a moment.
        repeats_within_s: seconds of arrival within which an event may come again; None if duplicates arrive
            within one cycle only.
        deletion_markers_s: seconds for which deletion markers are kept.
        leaves_values_out: whether changes may lack unchanged values.
        document_key: key of documents, whose updates may come without the document; None for other sources.
        completes_log: whether the platform adds these values to the log, from the change that last had them.
        knows_addresses: whether deletes may identify their row by its physical address only.
        values_fit: whether every value of an event fits the type that the event declares for its column.
            Where the table has the same types, the values need no check.
        log_places: pattern of SQL for the ordering keys that are positions in a log of the source which may
            start over; None if there are none, or events show it.
        schema_policies: schema policies of the tables whose columns do not follow the source; `*` stands for
            all tables without their own policy.
    """

    delivers_events: bool
    keeps_transactions: bool
    comes_in_order: bool
    trusts_inserts: bool
    can_be_compared: bool
    can_be_copied: bool
    repeats_within_s: float | None = None
    deletion_markers_s: float | None = None
    leaves_values_out: bool = False
    document_key: str | None = None
    completes_log: bool = False
    knows_addresses: bool = False
    values_fit: bool = False
    log_places: str | None = None
    schema_policies: tuple[tuple[str, SchemaPolicy], ...] = ()

    def schema_policy_of(self, table: str) -> SchemaPolicy:
        """Return the policy for events of a table whose columns differ from the lake's."""
        policies = dict(self.schema_policies)
        return policies.get(table, policies.get("*", SchemaPolicy.EVOLVE))

    def may_be_documents(self, table: TableSchema) -> bool:
        """Return whether a table may have documents, whose key is always the same column."""
        return [column.name for column in table.key_columns] == [self.document_key]

    def repeats_since_micros(self, micros: int) -> int:
        """Return the earliest arrival of an event whose duplicate arrives at `micros`."""
        return max(0, micros - int((self.repeats_within_s or 0) * MICROS_PER_S))


CHANGE_STREAM = SourceCapabilities(
    delivers_events=False,
    keeps_transactions=True,
    comes_in_order=True,
    trusts_inserts=True,
    can_be_compared=True,
    can_be_copied=True,
)
"""A Spanner change stream."""


class SourceSettings(ABC):
    """Location of a source, and how to read it; Spark's workers get these settings as text."""

    @property
    def begins_at_present(self) -> bool:
        """Whether a new pipeline begins at the source's present, so that only a copy brings older rows."""
        return False

    @property
    @abstractmethod
    def capabilities(self) -> SourceCapabilities:
        """Guarantees of the source about its changes."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Name of the source in messages."""

    @property
    def folder(self) -> str:
        """Folder or object store prefix with the source's files; empty if it reads no files."""
        return ""

    def reads(self, location: str) -> bool:
        """Return whether files in a folder or object store prefix would be read as events."""
        return bool(self.folder) and f"{_plain(location)}/".startswith(f"{_plain(self.folder)}/")

    @abstractmethod
    def with_deadline(self, deadline_s: float) -> Self:
        """Return these settings with a single attempt of at most `deadline_s` seconds per request."""

    @classmethod
    def from_fields(cls, entries: Mapping[str, Any], folder: Path | None = None) -> Self:
        """Return the settings from values of YAML or JSON, as `read_settings` does."""
        return read_settings(cls, entries, folder)

    @classmethod
    def from_options(cls, text: str) -> Self:
        """Parse the settings of a JSON text of `to_options`."""
        return cls.from_fields(json.loads(text))

    def to_options(self) -> str:
        """Return the settings as JSON text, equal for equal settings."""
        return to_json(self)


def _plain(location: str) -> str:
    """Return a location in one spelling: without its options, and aliases of its scheme."""
    scheme, separator, path = location.partition("?")[0].rpartition("://")
    if not separator or scheme == "file":
        return realpath(path).rstrip("/")
    return f"{_ALIASES.get(scheme, scheme)}://{path.rstrip('/')}"
