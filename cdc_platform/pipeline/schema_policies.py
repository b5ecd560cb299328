"""Tables whose columns stay as they are: which of the columns of events count, and which events do not."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.lake.lake import RAW
from cdc_platform.model.evolution import SchemaHistory
from cdc_platform.model.names import quote_text
from cdc_platform.model.schema_policy import SchemaPolicy, find_refusal
from cdc_platform.model.sightings import SeenColumn, parse_column_types
from cdc_platform.model.table_schema import ColumnType
from cdc_platform.pipeline.pipeline import Pipeline

Columns = Mapping[str, SeenColumn]
_SELECTED: Final = ("kind", "record_timestamp", "table_name", "column_types", "record_order")


@dataclass(frozen=True)
class KeptShape:
    """The columns that some events of a table have; ``order_key`` is the first one's."""

    table: str
    text: str
    columns: Columns
    order_key: str


def kept_shapes(pipeline: Pipeline, window: str) -> list[KeptShape]:
    """Return the shapes of events of tables that keep their columns, in the source's order; needs no Spark.

    Args:
        pipeline: the pipeline.
        window: filter of raw records.
    """
    if not pipeline.traits.schema_policies:
        return []
    scan = pipeline.lake.system_table(RAW).scan(row_filter=window, selected_fields=_SELECTED)
    rows = scan.to_arrow().group_by(["table_name", "column_types"]).aggregate([("record_order", "min")])
    found: list[KeptShape] = []
    for row in rows.to_pylist():
        table, columns = row["table_name"], parse_column_types(row["column_types"])
        is_kept = pipeline.traits.schema_policy_of(table or "") is not SchemaPolicy.EVOLVE
        if table is not None and columns and is_kept:
            found.append(KeptShape(table, row["column_types"], columns, row["record_order_min"]))
    return sorted(found, key=lambda shape: (shape.table, shape.order_key, shape.text))


def first_columns(shapes: Iterable[KeptShape], history: SchemaHistory) -> Mapping[str, Columns]:
    """Return the columns that tables begin with which nothing is known of: those of the first event."""
    found: dict[str, Columns] = {}
    for shape in shapes:
        if shape.table not in history.tables:
            found.setdefault(shape.table, shape.columns)
    return found


def with_refusals(pipeline: Pipeline, records: DataFrame, window: str, history: SchemaHistory) -> DataFrame:
    """Return raw records with the fault of those whose columns their tables do not take.

    Args:
        pipeline: the pipeline.
        records: raw records of a source that hands out events.
        window: filter of the same records.
        history: what is known of the tables before them.
    """
    shapes = kept_shapes(pipeline, window)
    begun = first_columns(shapes, history)
    branches = []
    for shape in shapes:
        known = _known(shape.table, begun, history)
        policy = pipeline.traits.schema_policy_of(shape.table)
        reason = find_refusal(shape.table, known, shape.columns, policy)
        if reason is not None:
            branches.append(
                f"WHEN table_name = {quote_text(shape.table)} AND column_types = {quote_text(shape.text)} "
                f"THEN {quote_text(reason)}"
            )
    if not branches:
        return records
    # A delete needs no more than the key.
    refusal = F.expr(f"CASE WHEN mod_type = 'DELETE' THEN NULL {' '.join(branches)} END")
    fault = F.coalesce("event.fault", refusal)
    return records.withColumn("event", F.col("event").withField("fault", fault))


def _known(table: str, begun: Mapping[str, Columns], history: SchemaHistory) -> Mapping[str, ColumnType]:
    if table in begun:
        return {name: column.type for name, column in begun[table].items()}
    return {version.name: version.type for version in history.tables[table].live_versions}
