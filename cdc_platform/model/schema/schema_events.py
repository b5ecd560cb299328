"""Changes of the source's schema: their kinds, their fields and their descriptions."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cdc_platform.model.base.timestamps import OrderPlace, to_rfc3339
from cdc_platform.model.schema.table_schema import ColumnType


class SchemaChange(StrEnum):
    """Kind of a schema change at the source."""

    TABLE_ADDED = "table_added"
    """The table is watched from here on."""
    TABLE_DROPPED = "table_dropped"
    """The table was dropped; the lake keeps its last state."""
    TABLE_UNWATCHED = "table_unwatched"
    """The table exists, but the change stream no longer watches it; the lake keeps its last state."""
    COLUMN_ADDED = "column_added"
    """The column is watched from here on; older rows read as NULL."""
    COLUMN_DROPPED = "column_dropped"
    """The column was dropped or is no longer watched; the lake keeps its values."""
    COLUMN_RETYPED = "column_retyped"
    """The column has another type; values are converted if Spanner converts them, else set aside."""
    COLUMN_WIDENED = "column_widened"
    """The column has a type that also holds its older values, in any order of the events."""
    COLUMN_REPLACED = "column_replaced"
    """The column has another type, and nothing states what its values became: they are set aside."""
    COLUMN_CASE_VARIANT = "column_case_variant"
    """A column was added whose name differs from another only in case; the lake gives it another name."""
    UNWATCHED_COLUMNS = "unwatched_columns"
    """From here on, the change stream does not watch these columns of a watched table."""
    GENERATED_COLUMNS = "generated_columns"
    """From here on, these are the generated columns of a watched table, which no change stream sends."""
    COLUMNS_PLACED = "columns_placed"
    """From here on, the columns outside the key have these ordinals."""
    KEY_ORDERED = "key_ordered"
    """From here on, the columns of the primary key have this order, which differs from their positions."""
    OTHER_TABLES = "other_tables"
    """From here on, these tables exist and are not watched."""
    KEYLESS_TABLES = "keyless_tables"
    """From here on, these watched tables are not in the lake, because their keys have no column."""
    OPTION_SET = "option_set"
    """An option of the change stream has this value from here on."""


CREATED: Final = "created"
UNCOPIED: Final = "uncopied"


@dataclass(frozen=True)
class SchemaEvent:
    """One change; ``since_micros`` is the first commit timestamp to which it applies.

    ``since_order`` is the ordering key of the first event of that moment to which it applies; it is empty if
    the change applies to all records of that moment.

    ``name`` is the name of a column or option, or the database of an added table, if that is known.
    ``value`` and ``previous`` are a column's type, a list of names or the ordinals of columns as JSON, an
    option's text, `created` for a table that did not exist before, or `uncopied` for a table that may have
    had rows before, which no copy brings.
    A change without a time was found when the pipeline began, or took effect at an unknown time.
    """

    cycle: int
    change: SchemaChange
    table: str | None = None
    name: str | None = None
    value: str | None = None
    previous: str | None = None
    is_primary_key: bool = False
    ordinal: int = 0
    since_micros: int | None = None
    since_order: str = ""

    @property
    def since(self) -> OrderPlace | None:
        """The first place in the order to which the change applies; None if that is unknown."""
        return None if self.since_micros is None else (self.since_micros, self.since_order)


def describe_event(event: SchemaEvent) -> str:
    """Return a short description of a change, such as `accounts`.`note` (STRING) was added at MOMENT."""
    at = f" at {to_rfc3339(event.since_micros)}" if event.since_micros is not None else ""
    match event.change:
        case SchemaChange.OPTION_SET:
            return f"option {event.name} of the change stream: {event.previous} became {event.value}{at}"
        case SchemaChange.OTHER_TABLES | SchemaChange.KEYLESS_TABLES:
            are_keyless = event.change is SchemaChange.KEYLESS_TABLES
            which = "without a key column" if are_keyless else "that are not watched"
            return f"tables {which} are {event.value or 'none'}{at}"
        case change if change in _COLUMNS_ARE:
            return f"columns of `{event.table}` {_COLUMNS_ARE[change]} {event.value or 'none'}{at}"
        case SchemaChange.COLUMN_RETYPED | SchemaChange.COLUMN_WIDENED | SchemaChange.COLUMN_REPLACED:
            types = f"from {_type_text(event.previous)} to {_type_text(event.value)}"
            return f"`{event.table}`.`{event.name}` changed {types}{at}"
        case SchemaChange.COLUMN_ADDED | SchemaChange.COLUMN_CASE_VARIANT | SchemaChange.COLUMN_DROPPED:
            is_gone = event.change is SchemaChange.COLUMN_DROPPED
            verb = "dropped, or is no longer watched," if is_gone else "added"
            kind = _type_text(event.value or event.previous)
            return f"`{event.table}`.`{event.name}` ({kind}) was {verb}{at}"
        case _:
            verb = event.change.value.removeprefix("table_")
            return f"table `{event.table}` was {verb}{at}"


_COLUMNS_ARE: Final = {
    SchemaChange.UNWATCHED_COLUMNS: "that are not watched are",
    SchemaChange.GENERATED_COLUMNS: "that are generated are",
    SchemaChange.COLUMNS_PLACED: "stand at",
    SchemaChange.KEY_ORDERED: "in the order of the key are",
}


def _type_text(value: str | None) -> str:
    kind = ColumnType.from_json(value or '{"code": "?"}')
    return kind.text
