"""Events that a table rejects: those with another key, or with other columns if the columns are fixed."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_platform.model.base.names import quote_text
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.observed_columns import ObservedColumn, parse_column_types
from cdc_platform.model.schema.schema_policy import SchemaPolicy, find_refusal
from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.model.stream.records import ModType
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.window_content import TypedTable, WindowContent
from cdc_platform.pipeline.schema.key_shapes import find_foreign_keys

Columns = Mapping[str, ObservedColumn]
_NO_DELETE: Final = f" AND mod_type <> '{ModType.DELETE.value}'"


@dataclass(frozen=True)
class FixedShape:
    """The columns of some events of a table; ``ordering_key`` is that of the first event."""

    table: str
    text: str
    columns: Columns
    ordering_key: str


def fixed_shapes(pipeline: Pipeline, content: WindowContent) -> list[FixedShape]:
    """Return the shapes of a window's events of tables with fixed columns, in the source's order.

    Deletes are left out: a file with deletes only may have just the key.
    """
    if not pipeline.capabilities.schema_policies:
        return []
    shapes: list[FixedShape] = []
    for (table, text), order in content.typed_tables(skips_deletes=True).items():
        columns = parse_column_types(text)
        if columns and pipeline.capabilities.schema_policy_of(table) is not SchemaPolicy.EVOLVE:
            shapes.append(FixedShape(table, text, columns, order))
    return sorted(shapes, key=lambda shape: (shape.table, shape.ordering_key, shape.text))


def first_columns(shapes: Iterable[FixedShape], history: SchemaHistory) -> Mapping[str, Columns]:
    """Return the columns of unknown tables, from the first event of each."""
    columns: dict[str, Columns] = {}
    for shape in shapes:
        if shape.table not in history.tables:
            columns.setdefault(shape.table, shape.columns)
    return columns


def with_refusals(
    pipeline: Pipeline, records: DataFrame, content: WindowContent, history: SchemaHistory
) -> DataFrame:
    """Return raw records with a fault for each event whose key or columns its table rejects.

    Args:
        pipeline: the pipeline.
        records: raw records of an event source.
        content: content of the same records.
        history: schema history before these records.
    """
    foreign = find_foreign_keys(pipeline, history, content.typed_tables())
    rejections = [
        *((shape, reason, "") for shape, reason in foreign.items()),
        # A delete only needs the key.
        *((shape, reason, _NO_DELETE) for shape, reason in _rejected_shapes(pipeline, content, history)),
    ]
    if not rejections:
        return records
    branches = (
        f"WHEN table_name = {quote_text(table)} AND column_types = {quote_text(text)}{condition} "
        f"THEN {quote_text(reason)}"
        for (table, text), reason, condition in rejections
    )
    fault = F.coalesce("event.fault", F.expr(f"CASE {' '.join(branches)} END"))
    return records.withColumn("event", F.col("event").withField("fault", fault))


def _rejected_shapes(
    pipeline: Pipeline, content: WindowContent, history: SchemaHistory
) -> Iterator[tuple[TypedTable, str]]:
    """Yield the shapes that the policies of their tables reject, with the reason."""
    shapes = fixed_shapes(pipeline, content)
    columns_by_table = first_columns(shapes, history)
    for shape in shapes:
        table_types = _columns_before(shape.table, columns_by_table, history)
        policy = pipeline.capabilities.schema_policy_of(shape.table)
        reason = find_refusal(shape.table, table_types, shape.columns, policy)
        if reason is not None:
            yield (shape.table, shape.text), reason


def _columns_before(
    table: str, columns_by_table: Mapping[str, Columns], history: SchemaHistory
) -> Mapping[str, ColumnType]:
    if table in columns_by_table:
        return {name: column.type for name, column in columns_by_table[table].items()}
    return {version.name: version.type for version in history.tables[table].live_versions}
