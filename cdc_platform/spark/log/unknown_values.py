"""Unknown values: the source did not send them, and the log has no earlier value."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.model.stream.source_capabilities import SourceCapabilities
from cdc_platform.spark.frames.table_frames import local_frame
from cdc_platform.spark.log.order import IS_DELETE, IS_TRUNCATE, UNSOUND

LACKS_VALUES: Final = "coalesce(size(unavailable_columns), 0) > 0"
_BEGINS: Final = ", ".join(f"'{kind.value}'" for kind in (ChangeKind.INSERT, ChangeKind.DELETE))
_NAMES: Final = "coalesce(array_contains(json_object_keys(new_values), column_name), false)"
_HAS_VALUE: Final = f"""
    NOT {IS_DELETE}
    AND NOT array_contains(coalesce(unavailable_columns, array()), column_name)
    AND unix_micros(commit_timestamp) >= coalesce(since_micros, 0)
"""
_SINCE: Final = pa.schema(
    [("table_name", pa.string()), ("column_name", pa.string()), ("since_micros", pa.int64())]
)


def incomplete_changes(capabilities: SourceCapabilities) -> str:
    """Return the SQL condition of the ordered changes to complete.

    A row that changes its key keeps its values, so these are always looked up. Other values are looked up
    only if the log must be completed, since the merge of partial updates keeps stored values.
    """
    if not capabilities.leaves_values_out:
        return "false"
    condition = f"NOT {UNSOUND} AND {LACKS_VALUES}"
    if capabilities.completes_log:
        return condition
    return f"{condition} AND (previous_keys IS NOT NULL OR change_kind = 'insert')"


def unresolved_values(
    log: DataFrame, since: Mapping[tuple[str, str], int], *, comes_in_order: bool = True
) -> DataFrame:
    """Return the values of rows that the log does not contain.

    A value is unresolved from the change that omitted it, if no earlier change of the row has it, until a
    later change does.

    Args:
        log: rows of the change log; all changes of a row, or none.
        since: when columns appeared, by table and name, or changed to a type to which no values were
            converted; earlier values do not belong to them.
        comes_in_order: whether the order of the log is that of the source; otherwise ordering keys have it.

    Returns:
        `table_name`, `keys` and `column_name`.
    """
    place, lowest = ("ordinal", "-1") if comes_in_order else ("ordering_key", "''")
    left_out = log.where(LACKS_VALUES).select(
        "table_name", "keys", F.explode("unavailable_columns").alias("column_name")
    )
    incomplete = left_out.distinct().join(_since_frame(log, since), ["table_name", "column_name"], "left")
    # Whole rows of ordered sources name all of their columns; those of files may omit nulls.
    has_value = f"{_HAS_VALUE} AND ({_NAMES if comes_in_order else f'is_whole_row OR {_NAMES}'})"
    changes = incomplete.join(log.where(f"NOT {IS_TRUNCATE}"), ["table_name", "keys"])
    rows = changes.groupBy("table_name", "keys", "column_name").agg(
        F.expr(f"max(if({has_value}, {place}, null))").alias("named_at"),
        F.expr(f"max(if(change_kind in ({_BEGINS}), {place}, null))").alias("begun_at"),
        F.expr(f"max_by({IS_DELETE}, {place})").alias("is_gone"),
        F.max(place).alias("newest"),
    )
    truncates = log.where(IS_TRUNCATE).groupBy("table_name").agg(F.max(place).alias("truncated_at"))
    living_rows = rows.join(F.broadcast(truncates), "table_name", "left").where(
        f"NOT is_gone AND newest > coalesce(truncated_at, {lowest})"
    )
    start = f"greatest(coalesce(begun_at, {lowest}), coalesce(truncated_at, {lowest}))"
    is_unresolved = f"named_at IS NULL OR named_at < {start}"
    return living_rows.where(is_unresolved).select("table_name", "keys", "column_name")


def _since_frame(log: DataFrame, since: Mapping[tuple[str, str], int]) -> DataFrame:
    rows = [{"table_name": name[0], "column_name": name[1], "since_micros": at} for name, at in since.items()]
    return F.broadcast(local_frame(log.sparkSession, pa.Table.from_pylist(rows, _SINCE)))
