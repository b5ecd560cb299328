"""Versions of rows that the ordered changes of a cycle create, and those that they end."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from cdc_platform.model.base.names import case_key, quote_spark
from cdc_platform.model.schema.table_options import (
    IS_CURRENT,
    TRANSACTION_ID,
    VALID_FROM,
    VALID_TO,
    name_in_history,
)
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.spark.frames.columns import col, has_same_key, key_aliases, key_cols
from cdc_platform.spark.tables.merge import append_rows
from cdc_platform.spark.tables.net_changes import ACTION, APPEND, UPDATE, NetChangeStats
from cdc_platform.spark.tables.typed_columns import COMMITTED, IS_READ, KIND, ORDINAL, TRANSACTION, flag_of

CLOSED_AT: Final = "__closed_at"
_IS_DELETED: Final = "__gone"
_EPOCH: Final = "__epoch"
_SINCE: Final = "__since"
_MOMENT: Final = "__moment"
"""Number of times that the table was recreated before a change."""
_BEFORE: Final = -1
"""Ordinal of a key's version before the changes."""


def called_as_in_history(rows: DataFrame) -> DataFrame:
    """Return rows of a table with its column names in the history."""
    return rows.withColumnsRenamed({name: name_in_history(name) for name in rows.columns})


def find_touched(changes: DataFrame, table: TableSchema) -> DataFrame:
    """Return one row per changed key.

    Args:
        changes: the result of `type_changes`, with origin.
        table: the source table.

    Returns:
        the key columns, `__closed_at` (time of the key's first change, which ends the version that is current
        before it), and `__action`: `update` if the key existed before, else `append`.
    """
    was_inserted = F.min_by(KIND, ORDINAL) == ChangeKind.INSERT.value
    first = f"min_by({COMMITTED}, {ORDINAL})"
    closed_at = F.expr(f"least({first}, {first} FILTER (WHERE NOT {IS_READ}))")
    return changes.groupBy(*key_cols(table)).agg(
        closed_at.alias(CLOSED_AT),
        F.when(was_inserted, APPEND).otherwise(UPDATE).alias(ACTION),
    )


def reaches_back(history: DataFrame, touched_keys: DataFrame, table: TableSchema, *, is_small: bool) -> bool:
    """Return whether a changed key has a version that began no earlier than the changes, in source time.

    This is the case if several transactions of a key share a time, if a transaction is in several cycles, or
    if the clock went back.

    Args:
        history: the history before the changes.
        touched_keys: the result of `find_touched`.
        table: the source table.
        is_small: whether there are few enough changed keys to broadcast them.
    """
    first = touched_keys.agg(F.min(CLOSED_AT)).collect()[0][0]
    if first is None:
        return False
    # With the literal, Iceberg skips all files that have only older versions.
    young = history.where(F.col(IS_CURRENT) & (F.col(VALID_FROM) >= F.lit(first)))
    keys = touched_keys.select(*key_aliases(table), CLOSED_AT)
    versions = young.join(F.broadcast(keys) if is_small else keys, has_same_key(table))
    return not versions.where(F.col(VALID_FROM) >= F.col(CLOSED_AT)).limit(1).isEmpty()


def current_before(
    history: DataFrame, touched_keys: DataFrame, table: TableSchema, *, is_small: bool
) -> DataFrame:
    """Return the versions of changed keys before the changes, as changes that set all columns.

    Args:
        history: the history before the changes, with all columns of the table.
        touched_keys: the result of `find_touched`.
        table: the source table.
        is_small: whether there are few enough changed keys to broadcast them.
    """
    keys = touched_keys.select(*key_aliases(table))
    current = history.where(IS_CURRENT)
    versions = current.join(F.broadcast(keys) if is_small else keys, has_same_key(table), "left_semi")
    return versions.select(
        F.lit(ChangeKind.INSERT.value).alias(KIND),
        F.lit(_BEFORE).cast("bigint").alias(ORDINAL),
        F.col(VALID_FROM).alias(COMMITTED),
        F.col(TRANSACTION_ID).alias(TRANSACTION),
        F.lit(False).alias(IS_READ),
        *key_cols(table),
        *(col(column.name) for column in table.value_columns),
        *(F.lit(True).alias(flag_of(column.name)) for column in table.value_columns),
    )


def make_versions(
    changes: DataFrame, table: TableSchema, *, has_partial_updates: bool, recreated_micros: Sequence[int] = ()
) -> DataFrame:
    """Return the versions that transactions create: one for each key after its last change in each of them.

    A version ends when the next transaction that changes its key commits. If two transactions with the same
    commit timestamp change a key, or if the later one is earlier by the source's clock, which may be the time
    of statements, the first one's version has no duration. All versions end when the table is recreated. A
    row that was read does not move the version of a captured change, see `_moments`.

    Args:
        changes: the result of `type_changes` with origin; with partial updates, also those of
            `current_before`.
        table: the source table.
        has_partial_updates: whether a change may name only some columns; the others keep their values.
        recreated_micros: times at which the table was dropped and recreated, ascending.

    Returns:
        the columns of the table, `valid_from`, `valid_to`, `is_current` and `transaction_id`.
    """
    epoch = F.lit(0)
    for micros in recreated_micros:
        epoch = epoch + (F.unix_micros(COMMITTED) >= micros).cast("int")
    changes = changes.withColumn(_EPOCH, epoch)
    of_key = Window.partitionBy(*key_cols(table), _EPOCH).orderBy(ORDINAL)
    so_far = of_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_read_row = F.col(IS_READ) & (F.col(KIND) != ChangeKind.DELETE.value)
    transaction = F.struct(COMMITTED, TRANSACTION, is_read_row)
    is_last = ~F.lead(transaction).over(of_key).eqNullSafe(transaction)
    names = [column.name for column in table.value_columns]
    states = changes.withColumn(_MOMENT, _moments(of_key)).select(
        *(F.max(_MOMENT).over(so_far).alias(_SINCE), TRANSACTION, ORDINAL, _EPOCH),
        *key_cols(table),
        *((_newest(name, so_far).alias(name) for name in names) if has_partial_updates else map(col, names)),
        _is_gone(so_far).alias(_IS_DELETED),
        is_last.alias("__is_last"),
    )
    final = states.where(F.col("__is_last") & (F.col(ORDINAL) != F.lit(str(_BEFORE))))
    recreations = [
        F.when(F.col(_EPOCH) == number, F.timestamp_micros(F.lit(micros)))
        for number, micros in enumerate(recreated_micros)
    ]
    versions = final.withColumn(VALID_TO, F.coalesce(F.lead(_SINCE).over(of_key), *recreations))
    return versions.where(~F.col(_IS_DELETED)).select(
        *(col(column.name) for column in table.columns),
        F.col(_SINCE).alias(VALID_FROM),
        VALID_TO,
        F.col(VALID_TO).isNull().alias(IS_CURRENT),
        F.col(TRANSACTION).alias(TRANSACTION_ID),
    )


def _moments(of_key: WindowSpec) -> Column:
    """Return the latest possible time of each change.

    A row from a read changed no later than the read, and before the next captured change.
    """
    # No frame up to the end of the partition: Spark would evaluate it again for each row.
    next_captured = F.expr(f"lead(if({IS_READ}, null, {COMMITTED})) IGNORE NULLS").over(of_key)
    return F.when(F.col(IS_READ), F.least(COMMITTED, next_captured)).otherwise(F.col(COMMITTED))


def find_misdated(history: DataFrame, changes: DataFrame, table: TableSchema) -> DataFrame:
    """Return keys and times of captured changes at which a version of a history is missing.

    The times come only from captured changes; if the clock went back, from an earlier captured change. The
    result does not depend on how `make_versions` finds them.

    Args:
        history: all versions.
        changes: all changes of the table, with origin and partial updates.
        table: the source table.
    """
    of_key = Window.partitionBy(*key_cols(table)).orderBy(ORDINAL)
    so_far = of_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    states = changes.select(
        *key_cols(table), ORDINAL, IS_READ, _is_gone(so_far).alias(_IS_DELETED), COMMITTED
    ).where(~F.col(IS_READ))
    moments = states.withColumn(_MOMENT, F.max(COMMITTED).over(so_far))
    is_last = ~F.lead(_MOMENT).over(of_key).eqNullSafe(F.col(_MOMENT))
    last_moments = moments.withColumn("__is_last", is_last).where(F.col("__is_last") & ~F.col(_IS_DELETED))
    dates = history.select(*key_aliases(table), VALID_FROM)
    has_same_date = [*has_same_key(table), F.col(_MOMENT) == F.col(VALID_FROM)]
    misdated_rows = last_moments.join(dates, has_same_date, "left_anti")
    return misdated_rows.select(*key_cols(table), F.col(_MOMENT).alias(VALID_FROM))


def _newest(name: str, so_far: WindowSpec) -> Column:
    # The struct separates an explicit NULL from a column that no change names.
    value = F.when(col(flag_of(name)), F.struct(col(name).alias("value")))
    return F.last(value, ignorenulls=True).over(so_far)["value"]


def _is_gone(so_far: WindowSpec) -> Column:
    is_delete = F.when(F.col(KIND) != ChangeKind.UPDATE.value, F.col(KIND) == ChangeKind.DELETE.value)
    newest = F.last(is_delete, ignorenulls=True).over(so_far)
    return F.coalesce(newest, F.lit(False))


def close_versions(
    spark: SparkSession,
    view: str,
    target: str,
    table: TableSchema,
    stats: NetChangeStats,
    *,
    trusts_inserts: bool,
) -> None:
    """End the current versions of changed keys, except those that the same cycle has appended.

    Args:
        spark: Spark session.
        view: name of the result of `find_touched`.
        target: Spark's name of the history.
        table: the source table.
        stats: the result of `measure_net_changes` for the changed keys.
        trusts_inserts: whether only keys that, by the log, existed before can have a version to end.
    """
    conditions = [
        f"t.{quote_spark(IS_CURRENT)}",
        f"t.{quote_spark(VALID_FROM)} < s.{CLOSED_AT}",
        *stats.conditions(table, is_bounded=trusts_inserts),
    ]
    source = f"SELECT * FROM {view}" + (f" WHERE {ACTION} = '{UPDATE}'" if trusts_inserts else "")
    spark.sql(
        f"MERGE INTO {target} t USING ({source}) s ON {' AND '.join(conditions)} WHEN MATCHED THEN "
        f"UPDATE SET t.{quote_spark(VALID_TO)} = s.{CLOSED_AT}, t.{quote_spark(IS_CURRENT)} = false"
    )


def append_versions(
    versions: DataFrame, target: str, columns: list[tuple[str, str]], properties: dict[str, str]
) -> None:
    """Append versions to a history; columns that only the history has are NULL.

    Args:
        versions: the result of `make_versions`.
        target: Spark's name of the history.
        columns: names and types of the history's columns.
        properties: entries of the snapshot's summary.
    """
    names = {case_key(name) for name in versions.columns}
    selected = [
        col(name) if case_key(name) in names else F.lit(None).cast(kind).alias(name) for name, kind in columns
    ]
    append_rows(versions.select(*selected), target, properties)
