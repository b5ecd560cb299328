"""Net changes: the ordered changes of each key become one row, in a single aggregation."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_platform.model.base.names import quote_spark, quote_text
from cdc_platform.model.schema.table_options import ORDERING_KEY, keeps_order
from cdc_platform.model.schema.table_schema import Column as SourceColumn
from cdc_platform.model.schema.table_schema import TableSchema, spark_type
from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.spark.frames.columns import col, key_cols
from cdc_platform.spark.tables.log_columns import LogColumns
from cdc_platform.spark.tables.typed_columns import (
    KIND,
    ORDINAL,
    flag_of,
    key_parts,
    type_changes,
    with_key_parts,
)

ACTION = "__action"
NEWEST, INSERTED, GONE = "__newest", "__inserted", "__gone"
APPEND, UPDATE, REMOVE, NOTHING = "append", "update", "delete", "none"
_ACTIONS = ((NOTHING, APPEND), (REMOVE, UPDATE))
"""Actions for new and for existing keys: if the row is gone, and if it stays."""

FIXED_BYTES = 16
"""Maximum bytes of a value in addition to its text."""
BOUNDED_TYPES = frozenset({"bigint", "string", "date", "timestamp"})


@dataclass(frozen=True)
class NetChangeStats:
    """Numbers of keys for each action of net changes, and their bounds.

    ``low_inclusive`` and ``high_inclusive`` are SQL literals of the first key column's bounds, None if its
    type has no literal or some key is NULL. ``size_bytes`` is the approximate size of the rows, if measured.
    ``named_columns`` are those that all net changes name, if measured: a merge reads no old value of them.
    """

    appended: int
    updated: int
    deleted: int
    has_null_keys: bool = False
    low_inclusive: str | None = None
    high_inclusive: str | None = None
    size_bytes: int = 0
    named_columns: frozenset[str] = frozenset()

    @property
    def existing(self) -> int:
        """Keys that the table must already have."""
        return self.updated + self.deleted

    def conditions(self, table: TableSchema, *, is_bounded: bool) -> list[str]:
        """Return the SQL conditions of a merge from `s` into `t`: equal keys, maybe within the bounds."""
        equal = "<=>" if self.has_null_keys else "="
        conditions = [
            f"{quote_spark('t', column.name)} {equal} {quote_spark('s', column.name)}"
            for column in table.key_columns
        ]
        if is_bounded and self.low_inclusive is not None and self.high_inclusive is not None:
            # Iceberg skips files only by literals, not by the content of the merge's source.
            first = quote_spark("t", table.key_columns[0].name)
            conditions.append(f"{first} BETWEEN {self.low_inclusive} AND {self.high_inclusive}")
        return conditions


@dataclass(frozen=True)
class NetChanges:
    """The net changes of one table, persisted and registered as a Spark view."""

    view: str
    frame: DataFrame
    stats: NetChangeStats
    schema: TableSchema
    has_partial_updates: bool


def compute_net_changes(changes: DataFrame, table: TableSchema) -> DataFrame:
    """Return one row per key with the effect of its changes.

    INSERT sets all columns, DELETE sets them all and the deletion marker, UPDATE sets the columns it names;
    the value of a column is that of the newest change that set it.

    Args:
        changes: the result of `type_changes`, with a flag for each value column.
        table: the table's columns.

    Returns:
        the key columns, the value columns, the flags `__names_COLUMN` (some change set the column), and
        `__action`: `append` (inserted by these changes), `update`, `delete`, or `none` (inserted and
        deleted).
    """
    values = _net_value_names(table)
    of_row_event = f"CASE WHEN {KIND} <> '{ChangeKind.UPDATE.value}' THEN {ORDINAL} END"
    net_values = changes.groupBy(*_key_names(table)).agg(
        F.expr(f"max_by({_is_kind(KIND, ChangeKind.DELETE)}, {of_row_event})").alias(GONE),
        F.expr(_is_inserted(KIND, ORDINAL)).alias(INSERTED),
        *(F.expr(_newest_value(name)) for name in values),
        *([F.max(ORDINAL).alias(ORDERING_KEY)] if keeps_order(table) else []),
    )
    return net_values.selectExpr(
        *_key_names(table),
        *(f"{quote_spark(name, 'value')} AS {quote_spark(name)}" for name in values),
        *(f"{quote_spark(name)} IS NOT NULL AS {quote_spark(flag_of(name))}" for name in values),
        *([ORDERING_KEY, f"true AS {quote_spark(flag_of(ORDERING_KEY))}"] if keeps_order(table) else []),
        _action(GONE),
    )


def compute_net_rows(log: DataFrame, table: TableSchema, words: LogColumns) -> DataFrame:
    """Return the net changes of whole rows, which need only the values of the newest changes.

    A value that does not fit its type does not fail the query if a newer change replaces it.

    Args:
        log: rows of the change log of this table, all of them with whole rows.
        table: the table's columns, all of which every change knows.
        words: expressions for the order of changes.
    """
    newest = F.expr(f"max(struct({', '.join(words.columns)})) AS {NEWEST}")
    is_inserted = F.expr(f"{_is_inserted(words.kind, words.position)} AS {INSERTED}")
    keys = key_parts(table)
    of_row = with_key_parts(log, table).groupBy(*keys).agg(newest, is_inserted)
    rows = of_row.selectExpr(f"{NEWEST}.*", INSERTED, *keys)
    changes = type_changes(rows, table, has_partial_updates=False, words=words, further=(INSERTED, *keys))
    key_names = [column.name for column in table.key_columns]
    return changes.selectExpr(
        # Not those of the newest change: a merge then need not shuffle rows by them again.
        *(f"{quote_spark(key)} AS {quote_spark(name)}" for key, name in zip(keys, key_names, strict=True)),
        *map(quote_spark, _net_value_names(table)),
        *([f"{ORDINAL} AS {quote_spark(ORDERING_KEY)}"] if keeps_order(table) else []),
        _action(_is_kind(KIND, ChangeKind.DELETE)),
    )


def _newest_value(name: str) -> str:
    """Return the SQL of a column's newest value; the struct separates NULL from an unnamed column.

    Structs are compared by their ordinals first. Spark copies the state of an aggregate for each change, and
    `max_by` has two parts in it.
    """
    value, is_named = quote_spark(name), quote_spark(flag_of(name))
    return f"max(CASE WHEN {is_named} THEN struct({ORDINAL}, {value} AS value) END) AS {value}"


def _is_inserted(kind: str, position: str) -> str:
    """Return the SQL of whether the first change is an insert."""
    return f"min_by({_is_kind(kind, ChangeKind.INSERT)}, {position})"


def _is_kind(column: str, kind: ChangeKind) -> str:
    return f"{column} = '{kind.value}'"


def _key_names(table: TableSchema) -> list[str]:
    return [quote_spark(column.name) for column in table.key_columns]


def _net_value_names(table: TableSchema) -> list[str]:
    return [column.name for column in table.value_columns if column.name != ORDERING_KEY]


def _action(is_gone: str) -> str:
    """Return the SQL of the action, from that of whether the newest change of a whole row is a delete."""
    of_new, of_existing = (f"if(coalesce({is_gone}, false), '{gone}', '{stays}')" for gone, stays in _ACTIONS)
    return f"if({INSERTED}, {of_new}, {of_existing}) AS {ACTION}"


def measure_net_changes(
    net_changes: DataFrame, table: TableSchema, *, has_size: bool = False, has_partial_updates: bool = False
) -> NetChangeStats:
    """Count the keys of net changes by action and find their bounds, in one Spark job.

    Args:
        net_changes: the result of `compute_net_changes`, or its keys and actions.
        table: the table's columns.
        has_size: whether to measure the size of all columns, too.
        has_partial_updates: whether to find the columns that all net changes name, by their flags.
    """
    keys = key_cols(table)
    first = table.key_columns[0]
    any_null = keys[0].isNull()
    for key in keys[1:]:
        any_null = any_null | key.isNull()
    touches = F.col(ACTION).isin(UPDATE, REMOVE)
    sizes = [size for column in table.columns for size in _sizes(column)] if has_size else []
    values = [column.name for column in table.value_columns] if has_partial_updates else []
    row = net_changes.agg(
        *(F.count_if(F.col(ACTION) == action).alias(action) for action in (APPEND, UPDATE, REMOVE)),
        F.count_if(any_null).alias("nulls"),
        F.min(F.when(touches, col(first.name))).cast("string").alias("low"),
        F.max(F.when(touches, col(first.name))).cast("string").alias("high"),
        F.count(F.lit(1)).alias("keys"),
        *(F.sum(size).alias(f"size_{place}") for place, size in enumerate(sizes)),
        *(F.bool_and(col(flag_of(name))).alias(f"named_{place}") for place, name in enumerate(values)),
    ).collect()[0]
    kind = spark_type(first.type)
    is_bounded = kind in BOUNDED_TYPES and not row["nulls"]
    lengths = sum(row[f"size_{place}"] or 0 for place, _ in enumerate(sizes))
    return NetChangeStats(
        appended=row[APPEND],
        updated=row[UPDATE],
        deleted=row[REMOVE],
        has_null_keys=row["nulls"] > 0,
        low_inclusive=_literal(row["low"], kind) if is_bounded else None,
        high_inclusive=_literal(row["high"], kind) if is_bounded else None,
        size_bytes=lengths + row["keys"] * FIXED_BYTES * len(table.columns),
        named_columns=frozenset(name for place, name in enumerate(values) if row[f"named_{place}"]),
    )


def _sizes(column: SourceColumn) -> list[Column]:
    """Return the variable parts of a value's size; long sums are slow for Spark to resolve."""
    kind, value = spark_type(column.type), col(column.name)
    if kind.startswith("array"):
        return [F.octet_length(F.to_json(F.struct(value))), F.greatest(F.size(value), F.lit(0)) * FIXED_BYTES]
    return [F.octet_length(value)] if kind in {"string", "binary"} else []


def _literal(text: str | None, kind: str) -> str | None:
    if text is None:
        return None
    if kind == "bigint":
        return f"{text}L"
    return quote_text(text) if kind == "string" else f"{kind.upper()} {quote_text(text)}"
