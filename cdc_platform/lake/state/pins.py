"""Pins of cuts: tags on every table of a cut, which outlast compaction and expiry."""

from pyspark.sql import SparkSession

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.commits.commits import conflicts_as
from cdc_platform.lake.commits.writes import is_refused_by_spark
from cdc_platform.lake.state.cut_states import CutState, cut_state, is_tagged, require_readable, tag_name
from cdc_platform.lake.state.cuts import find_cut
from cdc_platform.model.base.names import quote_spark


def pin_cut(lake: Lake, spark: SparkSession, number: int) -> CutState:
    """Tag a cut's tables to keep it readable until it is unpinned; pinning is idempotent.

    Raises:
        CutNotFound: there is no such cut, or a snapshot of it has expired; nothing was tagged.
    """
    cut = find_cut(lake, number)
    require_readable(cut_state(lake, cut))
    for name, snapshot_id in cut.tables.items():
        table = lake.table(name)
        if table is None or not is_tagged(table, cut, name):
            _alter(
                lake,
                spark,
                name,
                f"CREATE OR REPLACE TAG {quote_spark(tag_name(number))} AS OF VERSION {snapshot_id}",
            )
    # An expiry may have come between.
    return require_readable(cut_state(lake, cut))


def unpin_cut(lake: Lake, spark: SparkSession, number: int) -> CutState:
    """Remove a cut's tags, so it expires like any other cut; unpinning is idempotent.

    Raises:
        CutNotFound: there is no such cut.
    """
    cut = find_cut(lake, number)
    for name in cut.tables:
        table = lake.table(name)
        if table is not None and tag_name(number) in table.metadata.refs:
            _alter(lake, spark, name, f"DROP TAG IF EXISTS {quote_spark(tag_name(number))}")
    return cut_state(lake, cut)


def _alter(lake: Lake, spark: SparkSession, name: str, change: str) -> None:
    conflict = "Another process has committed at the same time; run the command again."
    with conflicts_as(conflict, is_refused_by_spark):
        spark.sql(f"ALTER TABLE {lake.spark_table(name)} {change}")
