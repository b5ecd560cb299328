"""The YAML face of a pipeline that reads a Spanner change stream."""

from pathlib import Path
from typing import Literal

import dagster as dg
from pydantic import Field

from cdc_platform.components.scaffolding import SpannerPipelineScaffolder
from cdc_platform.errors import SettingError
from cdc_platform.lake.settings import LakeSettings
from cdc_platform.pipeline.settings import MaintenanceSettings, PipelineSettings
from cdc_platform.sensors import Running
from cdc_platform.sources.spanner.settings import SpannerSettings
from cdc_platform.spark.settings import DEFAULT_PACKAGES, SparkSettings


class Source(dg.Model, dg.Resolvable):
    """A Spanner change stream, and how it is read."""

    project: str = Field(description="Google Cloud project that holds the instance.")
    instance: str = Field(description="Spanner instance.")
    database: str = Field(description="Database of the instance.")
    change_stream: str = Field(description="Change stream of the database.")
    start_timestamp: str | None = Field(
        default=None,
        description="First commit timestamp to read, RFC 3339, within the stream's retention. "
        "Counts only when the pipeline starts for the first time; empty means now.",
    )
    dialect: Literal["googlesql", "postgresql"] | None = Field(
        default=None, description="Dialect of the database; empty asks the database."
    )
    emulator_host: str | None = Field(
        default=None,
        description="HOST:PORT of a Spanner emulator, used without credentials; empty means Spanner itself, "
        "or the emulator that the environment names in SPANNER_EMULATOR_HOST.",
    )
    database_role: str | None = Field(
        default=None, description="Database role to read as, where fine-grained access control is used."
    )
    heartbeat_ms: int = Field(
        default=2000, description="Milliseconds after which an idle partition says that it is alive."
    )
    priority: Literal["LOW", "MEDIUM", "HIGH"] = Field(
        default="HIGH", description="Priority of the reads within the instance."
    )
    deadline_s: float = Field(default=60.0, description="Seconds without an answer after which a read fails.")
    max_attempts: int = Field(default=5, description="Attempts at a read before it counts as failed.")


class Lake(dg.Model, dg.Resolvable):
    """Where the tables are, and which catalog knows them."""

    path: str = Field(
        description="Folder or object store prefix of the lake. A relative folder is relative to the "
        "folder of this file."
    )
    catalog: dict[str, str] = Field(
        default_factory=dict,
        description="Properties of the Iceberg catalog as pyiceberg names them (`type`, `uri`, `warehouse`, "
        "...); empty means the SQLite file `catalog.db` in the lake's folder.",
    )
    table_format_version: int = Field(
        default=3, description="Iceberg format version of the merged tables: 3 has deletion vectors."
    )


class Spark(dg.Model, dg.Resolvable):
    """Which Spark does the work, and what it is given."""

    master: str = Field(
        default="local[2]", description="Master of a session of our own, such as `spark://HOST:7077`."
    )
    remote: str | None = Field(
        default=None,
        description="Address of a Spark Connect server that knows the lake's catalog, such as "
        "`sc://HOST:15002`; used instead of a session of our own.",
    )
    driver_memory: str = Field(default="2g", description="Heap of the driver of a session of our own.")
    packages: list[str] = Field(
        default_factory=lambda: list(DEFAULT_PACKAGES),
        description="Maven coordinates of Iceberg's jar and of the catalog's driver.",
    )
    jars_folder: str | None = Field(
        default=None,
        description="Folder with these jars, used instead of fetching them; relative to the folder of this "
        "file.",
    )
    conf: dict[str, str] = Field(
        default_factory=dict, description="Further Spark settings; they win over the platform's own."
    )


class Maintenance(dg.Model, dg.Resolvable):
    """How the lake is kept fast."""

    minor_every_ticks: int = Field(default=8, description="Ticks between two compactions of small files.")
    expire_every_ticks: int = Field(default=120, description="Ticks between two expiries of snapshots.")
    small_file_bytes: int = Field(
        default=8 * 1024 * 1024, description="Files below this size are small ones."
    )
    keep_snapshots_s: float = Field(
        default=24 * 3600.0, description="Seconds for which every cut stays readable."
    )
    keep_snapshots: int = Field(
        default=50, description="Number of the newest snapshots that stay whatever their age."
    )
    major_deleted_fraction: float = Field(
        default=0.2, description="Share of deleted rows above which a table's large files are rewritten."
    )


class Runs(dg.Model, dg.Resolvable):
    """How Dagster runs the pipeline."""

    sensor: bool = Field(
        default=True, description="Whether the sensor is on from the start; the UI can switch it later."
    )
    poll_s: int = Field(
        default=3, description="Least seconds between two looks of the sensor; Dagster's floor is 5."
    )
    follow_s: float = Field(
        default=60.0,
        description="Seconds for which a run that the sensor asked for goes on with further ticks after "
        "its first one; 0 means one tick a run.",
    )
    prove_every_s: float = Field(
        default=600.0,
        description="Seconds between two runs that also prove every table equal to the log and to the "
        "source, which reads whole tables.",
    )
    owners: list[str] = Field(
        default_factory=list, description="Owners of the assets: e-mail addresses, or `team:NAME`."
    )


@dg.scaffold_with(SpannerPipelineScaffolder)
class SpannerPipeline(dg.Component, dg.Model, dg.Resolvable):
    """A Spanner change stream as tables of a lake that are right at every moment."""

    name: str = Field(
        description="Name of the pipeline: its tables are in the namespace NAME of the lake, the platform's "
        "own in NAME__cdc. Lower-case letters, digits and underscores."
    )
    source: Source = Field(description="The change stream.")
    lake: Lake = Field(description="Where the tables are.")
    spark: Spark = Field(default_factory=Spark, description="What does the work.")
    tables: list[str] | None = Field(
        default=None,
        description="Source tables to materialise; empty means all that the stream watches, which asks the "
        "source whenever the code location is loaded.",
    )
    max_slice_s: float | None = Field(
        default=3600.0, description="Most seconds of the source's time that one tick reads when catching up."
    )
    idle_interval_s: float = Field(
        default=1.0, description="Seconds of rest after a tick that found nothing new."
    )
    maintenance: Maintenance = Field(default_factory=Maintenance, description="How the lake is kept fast.")
    runs: Runs = Field(default_factory=Runs, description="How Dagster runs the pipeline.")

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
            tables=None if self.tables is None else tuple(self.tables),
            max_slice_s=self.max_slice_s,
            idle_interval_s=self.idle_interval_s,
            maintenance=MaintenanceSettings(**self.maintenance.model_dump()),
        )

    def _source(self) -> SpannerSettings:
        try:
            settings = SpannerSettings(**self.source.model_dump(), request_tag=f"cdc_platform/{self.name}")
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
