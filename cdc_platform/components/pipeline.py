"""What the YAML of every kind of pipeline has in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import dagster as dg
from pydantic import BaseModel, Field

from cdc_platform.assets.upstream import NO_UPSTREAM, Upstream
from cdc_platform.components.documents import has_safe_document
from cdc_platform.components.parts import FINITE, Lake, Maintenance, Options, Runs, Spark, says
from cdc_platform.components.templates import check_integers, check_templates
from cdc_platform.components.texts import says_names
from cdc_platform.errors import SettingError
from cdc_platform.lake.catalog.settings import LakeSettings
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.pipeline.core.settings import MaintenanceSettings, PipelineSettings
from cdc_platform.pipeline.core.source import SourceSettings
from cdc_platform.sensors import Running
from cdc_platform.spark.session.settings import SparkSettings


class PipelineComponent(dg.Component, dg.Model, dg.Resolvable, ABC):
    """One source feeding one folder of a lake."""

    model_config = FINITE
    has_safe_document: ClassVar[Callable[[dg.ComponentLoadContext], bool]]

    name: Annotated[
        str,
        says(
            "Name of the pipeline: its tables are in the namespace NAME of the lake, the platform's "
            "own in NAME__cdc. Lower-case letters, digits and underscores."
        ),
    ]
    lake: Annotated[Lake, says("Where the tables are.")]
    spark: Annotated[Spark, says("What does the work.")] = Field(default_factory=Spark)
    tables: Annotated[
        list[str] | None,
        says_names(
            "Source tables to materialise; without a list all that the source tells of, which is asked "
            "whenever the code location is loaded."
        ),
    ] = None
    table_options: Annotated[
        dict[str, Options],
        says("What is kept of some tables beyond their current rows, by source table."),
    ] = Field(default_factory=dict)
    read_tasks: Annotated[
        int,
        says(
            "Most Spark tasks that share the partitions of a read; each reads several at a time. A local "
            "Spark takes no more than run at once; a cluster is kept busy by two to four times its cores."
        ),
    ] = 8
    read_here_s: Annotated[
        float,
        says(
            "The process that runs a cycle reads it if it covers no more seconds of a change stream, or few "
            "small files or messages, which is quicker than a Spark task; 0 leaves all reading to Spark."
        ),
    ] = 15.0
    merge_here_bytes: Annotated[
        int,
        says(
            "Rows of a cycle that take no more, once folded, are merged by the process that runs it, "
            "which is quicker than Spark; 0 leaves all merging to Spark."
        ),
    ] = 67_108_864
    idle_interval_s: Annotated[float, says("Seconds of rest after a cycle that found nothing new.")] = 1.0
    check_every_s: Annotated[
        float | None,
        says(
            "While cycles follow each other, seconds between two looks of the checks at what is new in the "
            "log; one that fails ends them. Empty means none."
        ),
    ] = 60.0
    fail_on_quarantine: Annotated[
        bool,
        says(
            "Whether records in quarantine fail the check `quarantine_empty`, and so `cdc-platform check`; "
            "otherwise the check warns. The pipeline continues either way."
        ),
    ] = False
    maintenance: Annotated[Maintenance, says("How the lake is kept fast.")] = Field(
        default_factory=Maintenance
    )
    runs: Annotated[Runs, says("How Dagster runs the pipeline.")] = Field(default_factory=Runs)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Let Dagster check a document of each kind of pipeline before it evaluates anything of it."""
        super().__pydantic_init_subclass__(**kwargs)
        # Dagster looks for it among the class's own members, not among what it inherits.
        cls.has_safe_document = staticmethod(has_safe_document)

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        """Return the component with its templates filled in, for this platform and for Dagster.

        Raises:
            SettingError: a template is more than an environment variable, or gives too large an integer.
        """
        check_templates(model.model_dump())
        component: Self = super().resolve_from_model(context, model)
        check_integers(component.model_dump())
        return component

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the pipeline's assets, checks, job and sensor."""
        return self.definitions(context.path if context.path.is_dir() else context.path.parent)

    def definitions(self, folder: Path) -> dg.Definitions:
        """Return the same for a YAML file in a folder."""
        # Reading a pipeline's settings needs no Spark: `cdc-platform status` is fast.
        from cdc_platform.components.building import build_pipeline

        runs = self.runs
        running = Running(runs.sensor, runs.poll_s, runs.follow_s, runs.prove_every_s, tuple(runs.owners))
        settings = self.to_settings(folder)
        return build_pipeline(settings, running, self.upstream())

    def to_settings(self, folder: Path) -> PipelineSettings:
        """Return what the pipeline is told; relative folders are relative to the YAML file's folder.

        Raises:
            SettingError: a value is out of its range; it is named as in the file.
        """
        return PipelineSettings(
            name=self.name,
            source=self._named_source(folder),
            lake=LakeSettings(
                path=resolve_path(folder, self.lake.path, "lake.path"),
                catalog=self.lake.catalog,
                table_format_version=self.lake.table_format_version,
            ),
            spark=self.spark_settings(folder),
            tables=None if self.tables is None else tuple(self.tables),
            table_options={
                name: TableOptions(**options.model_dump()) for name, options in self.table_options.items()
            },
            read_tasks=self.read_tasks,
            read_here_s=self.read_here_s,
            merge_here_bytes=self.merge_here_bytes,
            idle_interval_s=self.idle_interval_s,
            check_every_s=self.check_every_s,
            fail_on_quarantine=self.fail_on_quarantine,
            maintenance=MaintenanceSettings(**self.maintenance.model_dump()),
            **self.own_settings(),
        )

    @abstractmethod
    def source_settings(self, folder: Path) -> SourceSettings:
        """Return what the source is told.

        Raises:
            SettingError: a value is out of its range; it is named as in the part `source` of the file.
        """

    def upstream(self) -> Upstream:
        """Return what is shown of the source beside what is read of it.

        Raises:
            SetupError: it was asked for, and a library that tells it is missing.
        """
        return NO_UPSTREAM

    def own_settings(self) -> dict[str, Any]:
        """Return further settings of the pipeline that only this kind of source has."""
        return {}

    def _named_source(self, folder: Path) -> SourceSettings:
        try:
            return self.source_settings(folder)
        except SettingError as error:
            raise SettingError(f"source.{error.setting}", error.problem) from error

    def spark_settings(self, folder: Path) -> SparkSettings:
        """Return which Spark does the work."""
        given = self.spark.model_dump()
        jars = self.spark.jars_folder
        folders = {"jars_folder": None if jars is None else resolve_path(folder, jars, "spark.jars_folder")}
        return SparkSettings(**{**given, "packages": tuple(self.spark.packages), **folders})


def resolve_path(folder: Path, path: str, setting: str) -> str:
    """Return a path of the YAML file, which is relative to the file's folder.

    Raises:
        SettingError: the setting is empty, and would mean that folder itself.
    """
    if not path.strip():
        raise SettingError(setting, "is empty; write a folder, or `.` for the folder of this file")
    return path if "://" in path else str((folder / Path(path).expanduser()).absolute())
