"""Pipelines on sources whose schema changes; see `cdc_platform_tests/pipeline/evolving.py`."""

from typing import Any

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform_tests.pipeline.evolving import EvolvingSource
from cdc_platform_tests.support.pipelines import feed, make_pipeline, rows_of, source_of


def follow(lake: LakeSettings, *sources: EvolvingSource) -> Pipeline:
    """Return a pipeline on these tables, which declares each as long as it exists."""
    pipeline = make_pipeline(lake, ())
    source_of(pipeline).schema_at = lambda micros: schema_read_at(sources, micros)
    return pipeline


def schema_read_at(sources: tuple[EvolvingSource, ...], micros: int) -> SchemaRead:
    """Return a look at several tables; one without columns does not exist."""
    looks = [source.read_schema(micros) for source in sources if source.state_at(micros)[0]]
    unwatched = {name: columns for schema_read in looks for name, columns in schema_read.unwatched.items()}
    return SchemaRead(
        micros, tuple(table for schema_read in looks for table in schema_read.tables), unwatched, {}
    )


def read_until(pipeline: Pipeline, until_micros: int, *sources: EvolvingSource) -> None:
    """Commit the records up to a moment that have not been read yet."""
    due = [row for source in sources for at, row in source.records if at <= until_micros]
    for source in sources:
        source.records = [(at, row) for at, row in source.records if at > until_micros]
    feed(pipeline, until_micros, *due)


def live_rows(pipeline: Pipeline, source: EvolvingSource, micros: int) -> list[dict[str, Any]]:
    """Return the lake's rows at a moment, in the columns that the stream has always watched."""
    names = ["id", *(name for name in source.state_at(micros)[0] if name not in source.left)]
    rows = [{name: row[name] for name in names} for row in rows_of(pipeline, source.name)]
    return sorted(rows, key=lambda row: int(row["id"]))


def retyped_source() -> EvolvingSource:
    """Return rows that are written, retyped, then partly written again."""
    source = EvolvingSource()
    capture = ValueCaptureType.NEW_ROW
    for key in ("1", "2"):
        source.write(key, int(key), capture, ("a",))
        source.end_step()
    source.alter("retype", "a", "")
    source.alter("add", "b", "INT64")
    source.end_step()
    source.write("2", 9, capture, ("a", "b"))
    source.end_step()
    return source
