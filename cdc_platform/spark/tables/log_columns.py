"""Expressions over the change log of a source, from which the changes of its tables are typed."""

from dataclasses import dataclass

from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.model.stream.source_capabilities import CHANGE_STREAM, SourceCapabilities
from cdc_platform.spark.log.order import IS_TRUNCATE


@dataclass(frozen=True)
class LogColumns:
    """Expressions over the log for the order of changes and their other properties.

    ``names`` are the columns that a change names if it is not a whole row, or, if ``lists_missing``, those
    that it lacks: it then sets all others.
    """

    position: str
    committed: str
    kind: str
    names: str = "json_object_keys(new_values)"
    lists_missing: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the log from which whole rows are typed; the first one orders them."""
        return (self.position, "keys", "new_values", "change_kind", "is_whole_row")

    @classmethod
    def of(cls, capabilities: SourceCapabilities, *, is_late: bool = False) -> "LogColumns":
        """Return the expressions for the log of a source, with or without late changes."""
        position = "ordinal" if capabilities.comes_in_order and not is_late else "ordering_key"
        if not capabilities.delivers_events:
            return cls(position, "commit_timestamp", "change_kind")
        # An event with a whole row shows that the row exists, regardless of earlier changes. Where the insert
        # may still arrive, an update without some values does so, too.
        shows_row = f"change_kind = '{ChangeKind.UPDATE.value}'"
        if capabilities.comes_in_order:
            shows_row += " AND is_whole_row"
        # The effect of a truncate on a row is a deletion, see `with_truncated_rows`.
        kind = (
            f"CASE WHEN {shows_row} THEN '{ChangeKind.SNAPSHOT.value}' "
            f"WHEN {IS_TRUNCATE} THEN '{ChangeKind.DELETE.value}' "
            "ELSE change_kind END"
        )
        change_time = "coalesce(source_timestamp, commit_timestamp)"
        if not capabilities.comes_in_order:
            return cls(position, change_time, kind, "unavailable_columns", lists_missing=True)
        if not capabilities.leaves_values_out:
            return cls(position, change_time, kind)
        # A change may name columns that the source did not send, with null in place of their values.
        left_out = "coalesce(unavailable_columns, cast(array() as array<string>))"
        return cls(position, change_time, kind, f"array_except(json_object_keys(new_values), {left_out})")


PLAIN_WORDS = LogColumns.of(CHANGE_STREAM)
