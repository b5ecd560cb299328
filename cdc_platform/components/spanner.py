"""The YAML face of a pipeline that reads a Spanner change stream."""

from pathlib import Path
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import Field

from cdc_platform.components.parts import says
from cdc_platform.components.pipeline import PipelineComponent
from cdc_platform.components.scaffolding import SpannerPipelineScaffolder
from cdc_platform.components.texts import says_text
from cdc_platform.sources.spanner.settings import SpannerSettings


class Source(dg.Model, dg.Resolvable):
    """A Spanner change stream, and how it is read."""

    project: Annotated[str, says_text("Google Cloud project that holds the instance.")]
    instance: Annotated[str, says_text("Spanner instance.")]
    database: Annotated[str, says_text("Database of the instance.")]
    change_stream: Annotated[str, says_text("Change stream of the database.")]
    start_timestamp: Annotated[
        str | None,
        says(
            "First commit timestamp to read, RFC 3339, within the stream's retention. "
            "Counts only when the pipeline starts for the first time; empty means now, after which tables "
            "that hold data already are copied (`initial_copy`)."
        ),
    ] = None
    dialect: Annotated[
        Literal["googlesql", "postgresql"] | None, says("Dialect of the database; empty asks the database.")
    ] = None
    emulator_host: Annotated[
        str | None,
        says(
            "HOST:PORT of a Spanner emulator, used without credentials; empty means Spanner itself, "
            "or the emulator that the environment names in SPANNER_EMULATOR_HOST."
        ),
    ] = None
    database_role: Annotated[
        str | None, says_text("Database role to read as, where fine-grained access control is used.")
    ] = None
    heartbeat_ms: Annotated[
        int, says("Milliseconds after which an idle partition says that it is alive.")
    ] = 2000
    stuck_after_s: Annotated[
        float | None,
        says(
            "Seconds without any record or heartbeat after which a partition counts as stuck: it is asked "
            "again once, and then left to the next cycle; empty means ten heartbeats, but at least 20 s."
        ),
    ] = None
    priority: Annotated[
        Literal["LOW", "MEDIUM", "HIGH"], says("Priority of the reads within the instance.")
    ] = "HIGH"
    data_boost: Annotated[
        bool,
        says(
            "Whether Spanner answers the initial copy with compute of its own (Data Boost, billed by itself, "
            "needs `spanner.databases.useDataBoost`), so that the instance does not feel it."
        ),
    ] = False
    deadline_s: Annotated[float, says("Seconds after which one call to the source counts as failed.")] = 60.0
    max_attempts: Annotated[int, says("Attempts at a read before it counts as failed.")] = 5
    nanosecond_columns: Annotated[
        list[str],
        says(
            "Timestamp columns, as `TABLE.COLUMN`, whose digits beyond microseconds count: the lake "
            "keeps them as text with nine digits of a second. Fixed once the table is created."
        ),
    ] = Field(default_factory=list)


@dg.scaffold_with(SpannerPipelineScaffolder)
class SpannerPipeline(PipelineComponent):
    """A Spanner change stream as lakehouse tables, transactionally consistent at every published cut."""

    source: Annotated[Source, says("The change stream.")]
    initial_copy: Annotated[
        bool | None,
        says(
            "Whether tables that hold data already, now or when they are added later, are copied as they are "
            "at one moment before the stream takes over; empty means: unless `start_timestamp` is given."
        ),
    ] = None
    copy_chunk_rows: Annotated[
        int, says("About how many rows one task copies of a table that Spanner does not cut by itself.")
    ] = 25_000
    copy_s: Annotated[
        float,
        says(
            "Seconds for which a cycle copies tables before it goes on with the others, which lag behind by "
            "so much meanwhile; the chunks at hand are always copied to their end."
        ),
    ] = 20.0
    max_window_s: Annotated[
        float | None, says("Most seconds of the source's time that one cycle reads when catching up.")
    ] = 3600.0

    def source_settings(self, folder: Path) -> SpannerSettings:  # noqa: ARG002  no path is among them
        """Return what is told of the change stream."""
        given = self.source.model_dump()
        nanosecond_columns = tuple(given.pop("nanosecond_columns"))
        settings = SpannerSettings(
            **given, nanosecond_columns=nanosecond_columns, request_tag=f"cdc_platform/{self.name}"
        )
        return settings.with_environment()

    def own_settings(self) -> dict[str, Any]:
        """Return how tables are copied and how much a cycle reads."""
        return {
            "initial_copy": self.initial_copy,
            "copy_chunk_rows": self.copy_chunk_rows,
            "copy_s": self.copy_s,
            "max_window_s": self.max_window_s,
        }
