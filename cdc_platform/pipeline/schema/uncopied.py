"""Tables without a copy of their rows from before the change stream's beginning."""

from dataclasses import replace

from cdc_platform.errors import RetentionExpired, SourceNotFound
from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.trace import trace_lineage


def with_uncopied(pipeline: Pipeline, history: SchemaHistory, schema_read: SchemaRead) -> SchemaRead:
    """Return the schema read with the names of new tables that lack a copy of older rows.

    Raises:
        SourceError: the source cannot answer.
    """
    if pipeline.settings.copies_first or not pipeline.capabilities.can_be_compared:
        return schema_read
    chosen = pipeline.settings.tables
    fresh = {table.name for table in schema_read.tables} - history.tables.keys()
    tables = sorted(fresh if chosen is None else fresh & {*chosen})
    if not tables:
        return schema_read
    if history.cycle == 0:
        first_micros = _first_micros(pipeline)
        tables = [name for name in tables if _may_have_had_rows(pipeline, name, first_micros)]
    return replace(schema_read, uncopied=frozenset(tables))


def _first_micros(pipeline: Pipeline) -> int:
    """Return the time from which the change stream is read, from the lineage."""
    root = trace_lineage(pipeline).partitions.get(ROOT_TOKEN)
    return root.start_micros if root is not None else pipeline.source.start_micros()


def _may_have_had_rows(pipeline: Pipeline, table: str, micros: int) -> bool:
    try:
        return any(batch.num_rows for batch in pipeline.stream_source.rows_at(table, micros))
    except SourceNotFound:
        return False
    except RetentionExpired:
        # The source no longer knows.
        return True
