"""The YAML face of a pipeline that reads the files of a Datastream stream."""

from pathlib import Path
from typing import Annotated, Literal

import dagster as dg
from pydantic import Field

from cdc_platform.assets.stream_state import StreamAsset, build_stream, stream_resource
from cdc_platform.assets.upstream import NO_UPSTREAM, Upstream
from cdc_platform.checks.stream_state import build_stream_check
from cdc_platform.components.parts import says
from cdc_platform.components.pipeline import PipelineComponent, resolve_path
from cdc_platform.components.scaffolding import DatastreamPipelineScaffolder
from cdc_platform.components.texts import says_names, says_text, says_texts
from cdc_platform.sources.datastream.settings.settings import DatastreamSettings
from cdc_platform.sources.datastream.settings.stream_settings import StreamSettings
from cdc_platform.sources.datastream.stream.stream_reader import require_library

DAY_S = 24 * 3600.0


class Source(dg.Model, dg.Resolvable):
    """Where a stream writes its files, and what its events mean.

    Tables are named as the source names them, such as `public.orders`, or as `table_name` does; `*` stands
    for every other one.
    """

    path: Annotated[
        str,
        says(
            "Folder or object store prefix that the stream writes to, such as `gs://bucket/prefix`. "
            "A relative folder is relative to the folder of this file."
        ),
    ]
    source: Annotated[
        Literal["mysql", "oracle", "postgresql", "sqlserver", "salesforce", "mongodb"] | None,
        says("What the stream reads; empty: each event's read method and metadata tell it."),
    ] = None
    stream: Annotated[
        str | None,
        says_text(
            "Resource name of the stream, `projects/PROJECT/locations/LOCATION/streams/STREAM`, whose state "
            "is then shown and checked; needs the extra `datastream`."
        ),
    ] = None
    datastream_host: Annotated[
        str | None,
        says_text(
            "HOST:PORT of an emulator of Datastream's API, asked without credentials; empty: Google's."
        ),
    ] = None
    table_name: Annotated[
        str | None,
        says(
            "How a table is called, from {database}, {schema} and {table}; without {database}, the shards of "
            "a table become one. Empty: as the source has it."
        ),
    ] = None
    keys: Annotated[
        dict[str, list[str]],
        says("Columns of the key per table, where the events tell none, or another one."),
    ] = Field(default_factory=dict)
    keyless: Annotated[
        dict[str, str],
        says_texts(
            "What becomes of tables without a key, per table: `append` (each event is a row), `row_hash` "
            "(equal rows are one), or `refuse` (they go to quarantine)."
        ),
    ] = Field(default_factory=dict)
    sequence_columns: Annotated[
        dict[str, str],
        says_texts("Column per table whose values order its events, in BigQuery's grammar of such numbers."),
    ] = Field(default_factory=dict)
    backfill_policy: Annotated[
        Literal["initial", "by_source_timestamp", "force"],
        says(
            "Whether a row of a backfill gives way to every captured change (`initial`), to later ones only "
            "(`by_source_timestamp`), or to none of before an epoch (`force`)."
        ),
    ] = "initial"
    epochs: Annotated[
        list[str] | None,
        says_names(
            "Moments, RFC 3339, in quotes: what happened at or after one follows everything before it, for "
            "logs that start over and for repeated backfills. Declare one before its time comes."
        ),
    ] = None
    binlog_basenames: Annotated[
        list[str] | None,
        says_names("Names of MySQL's binary logs without their number, oldest first, where they changed."),
    ] = None
    order_by: Annotated[
        Literal["position", "timestamp"],
        says(
            "What comes first in the order of PostgreSQL and SQL Server: position in the log, or timestamp."
        ),
    ] = "position"
    null_means_unchanged: Annotated[
        dict[str, list[str]],
        says("Columns per table in whose updates NULL stands for a large value that was not sent."),
    ] = Field(default_factory=dict)
    columns: Annotated[
        dict[str, dict[str, str]],
        says("Types of columns, per table and column, where JSON files do not tell them."),
    ] = Field(default_factory=dict)
    schema_policy: Annotated[
        dict[str, str],
        says_texts("What happens when a table's schema changes: `evolve`, `freeze` or `quarantine`."),
    ] = Field(default_factory=dict)
    deletion_marker_retention_s: Annotated[
        float, says("Seconds for which a deleted row is remembered, so that no late event brings it back.")
    ] = 7 * DAY_S
    late_files_s: Annotated[
        float,
        says(
            "Seconds for which files and events may come late, or again: repeated ones are known within it."
        ),
    ] = 3 * DAY_S
    most_files: Annotated[int, says("Files that one cycle reads at most.")] = 10_000
    most_bytes: Annotated[int, says("Bytes that one cycle reads at most.")] = 2 * 1024**3
    most_depth: Annotated[
        int,
        says(
            "How deep lists and objects of an Avro schema lie in each other at most, and arrays of a value."
        ),
    ] = 64
    most_digits: Annotated[int, says("Digits of a decimal, before and after the point, at most.")] = 1_000
    most_values: Annotated[int, says("Values of an event, fields and items of arrays, at most.")] = 1_000_000
    most_block_bytes: Annotated[
        int,
        says("Bytes of a line of JSON, and of a block of Avro once it is decompressed, at most."),
    ] = 256 * 1024**2
    deadline_s: Annotated[float, says("Seconds within which the store has to give a first answer.")] = 60.0


@dg.scaffold_with(DatastreamPipelineScaffolder)
class DatastreamPipeline(PipelineComponent):
    """The files of a Datastream stream as tables of a lake."""

    source: Annotated[Source, says("The stream's files.")]

    def upstream(self) -> Upstream:
        """Return the stream itself, where the settings name it."""
        if self.source.stream is None:
            return NO_UPSTREAM
        require_library()
        settings = StreamSettings(self.source.stream, self.source.datastream_host)
        stream = StreamAsset(self.name, settings, tuple(self.runs.owners))
        return Upstream(
            (build_stream(stream),),
            (build_stream_check(stream),),
            {stream.resource_key: stream_resource(stream)},
        )

    def source_settings(self, folder: Path) -> DatastreamSettings:
        """Return what is told of the stream."""
        given = self.source.model_dump()
        for name in ("epochs", "binlog_basenames"):
            given[name] = tuple(given[name] or ())
        for name in ("keys", "null_means_unchanged"):
            given[name] = {table: tuple(columns) for table, columns in given[name].items()}
        return DatastreamSettings(**{**given, "path": resolve_path(folder, self.source.path, "path")})
