"""The YAML face of a pipeline that reads a Spanner change stream."""

from pathlib import Path
from typing import Annotated, Literal

import dagster as dg
from pydantic import Field

from cdc_platform.components.scaffolding import SpannerPipelineScaffolder
from cdc_platform.components.texts import says_names, says_text, says_texts
from cdc_platform.errors import SettingError
from cdc_platform.lake.settings import LakeSettings
from cdc_platform.model.table_options import TableOptions
from cdc_platform.pipeline.settings import MaintenanceSettings, PipelineSettings
from cdc_platform.sensors import Running
from cdc_platform.sources.spanner.settings import SpannerSettings
from cdc_platform.spark.settings import DEFAULT_PACKAGES, SparkSettings


def says(description: str) -> dg.Resolver:
    """Describe a setting; a description of pydantic's own does not reach the schema that editors use."""
    resolver: dg.Resolver = dg.Resolver.default(description=description)
    return resolver


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
            "anew once, and then left to the next tick; empty means ten heartbeats, but at least 20 s."
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


class Lake(dg.Model, dg.Resolvable):
    """Where the tables are, and which catalog knows them."""

    path: Annotated[
        str,
        says(
            "Folder or object store prefix of the lake. A relative folder is relative to the "
            "folder of this file."
        ),
    ]
    catalog: Annotated[
        dict[str, str],
        says_texts(
            "Properties of the Iceberg catalog and the object store as pyiceberg names them (`type`, `uri`, "
            "`warehouse`, `s3.endpoint`, ...), and `user` and `password` of a sql catalog; Spark gets the "
            "same. Empty means the SQLite file `catalog.db` in the lake's folder."
        ),
    ] = Field(default_factory=dict)
    table_format_version: Annotated[
        int, says("Iceberg format version of the merged tables: 3 has deletion vectors.")
    ] = 3


class Spark(dg.Model, dg.Resolvable):
    """Which Spark does the work, and what it is given."""

    master: Annotated[str, says("Master of a session of our own, such as `spark://HOST:7077`.")] = "local[2]"
    remote: Annotated[
        str | None,
        says(
            "Address of a Spark Connect server that knows the lake's catalog, such as "
            "`sc://HOST:15002`; used instead of a session of our own."
        ),
    ] = None
    driver_memory: Annotated[str, says("Heap of the driver of a session of our own.")] = "2g"
    packages: Annotated[
        list[str],
        says(
            "Maven coordinates of Iceberg's jar and of the catalog's driver; what a PostgreSQL catalog and "
            "an object store need besides is added."
        ),
    ] = Field(default_factory=lambda: list(DEFAULT_PACKAGES))
    jars_folder: Annotated[
        str | None,
        says("Folder with these jars, used instead of fetching them; relative to the folder of this file."),
    ] = None
    conf: Annotated[
        dict[str, str], says_texts("Further Spark settings; they win over the platform's own.")
    ] = Field(default_factory=dict)
    ship_package: Annotated[
        bool | None,
        says(
            "Whether this package is sent to the workers, which need its libraries in any case; empty means: "
            "where `master` is a cluster."
        ),
    ] = None


class Maintenance(dg.Model, dg.Resolvable):
    """How the lake is kept fast."""

    minor_every_ticks: Annotated[int, says("Ticks between two compactions of small files.")] = 6
    expire_every_ticks: Annotated[int, says("Ticks between two expiries of snapshots.")] = 120
    small_file_bytes: Annotated[int, says("Files below this size are small ones.")] = 8 * 1024 * 1024
    keep_snapshots_s: Annotated[float, says("Seconds for which every cut stays readable.")] = 24 * 3600.0
    keep_snapshots: Annotated[int, says("Number of the newest snapshots that stay whatever their age.")] = 50
    major_deleted_fraction: Annotated[
        float, says("Share of deleted rows above which a table's large files are rewritten.")
    ] = 0.2


class Options(dg.Model, dg.Resolvable):
    """What is kept of a table beyond its current rows."""

    history: Annotated[
        bool,
        says(
            "Whether every version of every row is kept in a table TABLE__history, with `valid_from`, "
            "`valid_to`, `is_current` and `transaction_id` (SCD type 2)."
        ),
    ] = False
    soft_delete: Annotated[
        bool,
        says(
            "Whether deleted rows stay in the table, with `__deleted` true and the moment in `__deleted_at`. "
            "Switched on later, the table is built anew by the next tick, from its initial copy and the log."
        ),
    ] = False


class Runs(dg.Model, dg.Resolvable):
    """How Dagster runs the pipeline."""

    sensor: Annotated[bool, says("Whether the sensor is on from the start; the UI can switch it later.")] = (
        True
    )
    poll_s: Annotated[int, says("Least seconds between two looks of the sensor; Dagster's floor is 5.")] = 3
    follow_s: Annotated[
        float,
        says(
            "Seconds for which a run that the sensor asked for goes on with further ticks after "
            "its first one; 0 means one tick a run."
        ),
    ] = 60.0
    prove_every_s: Annotated[
        float,
        says(
            "Seconds between two runs that also prove every table equal to the log and to the "
            "source, which reads whole tables."
        ),
    ] = 600.0
    owners: Annotated[list[str], says("Owners of the assets: e-mail addresses, or `team:NAME`.")] = Field(
        default_factory=list
    )


@dg.scaffold_with(SpannerPipelineScaffolder)
class SpannerPipeline(dg.Component, dg.Model, dg.Resolvable):
    """A Spanner change stream as tables of a lake that are right at every moment."""

    name: Annotated[
        str,
        says(
            "Name of the pipeline: its tables are in the namespace NAME of the lake, the platform's "
            "own in NAME__cdc. Lower-case letters, digits and underscores."
        ),
    ]
    source: Annotated[Source, says("The change stream.")]
    lake: Annotated[Lake, says("Where the tables are.")]
    spark: Annotated[Spark, says("What does the work.")] = Field(default_factory=Spark)
    tables: Annotated[
        list[str] | None,
        says_names(
            "Source tables to materialise; empty means all that the stream watches, which asks the "
            "source whenever the code location is loaded."
        ),
    ] = None
    initial_copy: Annotated[
        bool | None,
        says(
            "Whether tables that hold data already, now or when they are added later, are copied as they are "
            "at one moment before the stream takes over; empty means: unless `start_timestamp` is given."
        ),
    ] = None
    copy_piece_rows: Annotated[
        int, says("About how many rows one task copies of a table that Spanner does not cut by itself.")
    ] = 250_000
    copy_s: Annotated[
        float,
        says(
            "Seconds for which a tick copies tables before it goes on with the others, which lag behind by "
            "so much meanwhile; the pieces at hand are always copied to their end."
        ),
    ] = 20.0
    table_options: Annotated[
        dict[str, Options],
        says("What is kept of some tables beyond their current rows, by source table."),
    ] = Field(default_factory=dict)
    read_tasks: Annotated[
        int,
        says(
            "Most Spark tasks that share the partitions of a read; each reads several at a time. Two to four "
            "times Spark's cores keep all of them busy; more only cost."
        ),
    ] = 8
    max_slice_s: Annotated[
        float | None, says("Most seconds of the source's time that one tick reads when catching up.")
    ] = 3600.0
    idle_interval_s: Annotated[float, says("Seconds of rest after a tick that found nothing new.")] = 1.0
    maintenance: Annotated[Maintenance, says("How the lake is kept fast.")] = Field(
        default_factory=Maintenance
    )
    runs: Annotated[Runs, says("How Dagster runs the pipeline.")] = Field(default_factory=Runs)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the pipeline's assets, checks, job and sensor."""
        return self.definitions(context.path if context.path.is_dir() else context.path.parent)

    def definitions(self, folder: Path) -> dg.Definitions:
        """Return the same for a YAML file in a folder."""
        # Reading a pipeline's settings needs no Spark: `cdc-platform status` is fast.
        from cdc_platform.components.building import build_pipeline

        runs = self.runs
        running = Running(runs.sensor, runs.poll_s, runs.follow_s, runs.prove_every_s, tuple(runs.owners))
        return build_pipeline(self.to_settings(folder), running)

    def to_settings(self, folder: Path) -> PipelineSettings:
        """Return what the pipeline is told; relative folders are relative to the YAML file's folder.

        Raises:
            SettingError: a value is out of its range; it is named as in the file.
        """
        return PipelineSettings(
            name=self.name,
            source=self._source(),
            lake=LakeSettings(
                path=_resolve(folder, self.lake.path),
                catalog=self.lake.catalog,
                table_format_version=self.lake.table_format_version,
            ),
            spark=self._spark(folder),
            tables=tuple(self.tables) if self.tables else None,
            initial_copy=self.initial_copy,
            copy_piece_rows=self.copy_piece_rows,
            copy_s=self.copy_s,
            table_options={
                name: TableOptions(**options.model_dump()) for name, options in self.table_options.items()
            },
            read_tasks=self.read_tasks,
            max_slice_s=self.max_slice_s,
            idle_interval_s=self.idle_interval_s,
            maintenance=MaintenanceSettings(**self.maintenance.model_dump()),
        )

    def _source(self) -> SpannerSettings:
        try:
            given = self.source.model_dump()
            nanosecond_columns = tuple(given.pop("nanosecond_columns"))
            settings = SpannerSettings(
                **given,
                nanosecond_columns=nanosecond_columns,
                request_tag=f"cdc_platform/{self.name}",
            )
            return settings.with_environment()
        except SettingError as error:
            raise SettingError(f"source.{error.setting}", error.problem) from error

    def _spark(self, folder: Path) -> SparkSettings:
        given = self.spark.model_dump()
        jars = self.spark.jars_folder
        folders = {"jars_folder": _resolve(folder, jars) if jars else None}
        return SparkSettings(**{**given, "packages": tuple(self.spark.packages), **folders})


def _resolve(folder: Path, path: str) -> str:
    return path if "://" in path else str((folder / Path(path).expanduser()).absolute())
