"""Settings of a pipeline: one source, one folder of the lake, one Spark."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from cdc_platform.errors import SettingError
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.declared_settings import Described, check_range
from cdc_platform.model.base.names import check_identifier
from cdc_platform.model.base.timestamps import DAY_S
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.stream.source_capabilities import SourceCapabilities, SourceSettings
from cdc_platform.spark.launch.spark_settings import SparkSettings

KEPT_SNAPSHOTS_MIN: Final = 10
"""Minimum of `keep_snapshots`: compaction adds a few snapshots after that of the newest cycle."""


@dataclass(frozen=True)
class MaintenanceSettings:
    """Settings that keep the lake fast."""

    minor_every_cycles: Annotated[int, Described("Cycles between two compactions of small files.")] = 6
    expire_every_cycles: Annotated[
        int, Described("Minimum number of cycles between two expiries of snapshots.")
    ] = 120
    small_file_bytes: Annotated[int, Described("Bytes below which a file counts as small.")] = 8 * 1024 * 1024
    keep_every_cut_s: Annotated[
        float,
        Described("Seconds for which every cut stays readable; older ones are thinned out."),
    ] = 600.0
    keep_snapshots_s: Annotated[
        float, Described("Maximum seconds for which a cut stays readable; a pinned cut stays forever.")
    ] = DAY_S
    keep_snapshots: Annotated[int, Described("Number of newest snapshots that stay regardless of age.")] = 50
    keep_metadata_s: Annotated[
        float,
        Described("Minimum seconds for which a replaced metadata file of a table stays readable."),
    ] = 3600.0
    keep_orphans_s: Annotated[
        float,
        Described("Minimum age in seconds, above a day, at which files that no metadata names are deleted."),
    ] = 3 * DAY_S
    major_deleted_fraction: Annotated[
        float, Described("Fraction of deleted rows above which a table's large files are rewritten.")
    ] = 0.2

    def __post_init__(self) -> None:
        place = "maintenance."
        check_range(self, ("minor_every_cycles", "expire_every_cycles"), at_least=1, place=place)
        not_negative = ("small_file_bytes", "keep_every_cut_s", "keep_snapshots_s", "keep_metadata_s")
        check_range(self, not_negative, at_least=0, place=place)
        check_range(self, ("major_deleted_fraction",), above=0, place=place)
        if self.keep_orphans_s <= DAY_S:
            raise SettingError(
                "maintenance.keep_orphans_s",
                f"must be more than a day, {DAY_S:.0f}, or maintenance could delete the files of a running "
                f"commit, but is: {self.keep_orphans_s}",
            )
        if self.keep_snapshots < KEPT_SNAPSHOTS_MIN:
            raise SettingError(
                "maintenance.keep_snapshots",
                f"must be at least {KEPT_SNAPSHOTS_MIN}, because snapshots record the progress of the "
                f"pipeline, but is: {self.keep_snapshots}",
            )


@dataclass(frozen=True)
class PipelineSettings:
    """One source feeding one folder of the lake."""

    name: Annotated[
        str,
        Described(
            "Name of the pipeline, and of its namespace in the lake: lower-case letters, digits and "
            "underscores."
        ),
    ]
    source: Annotated[SourceSettings, Described("Location of the changes, and how to read them.")]
    lake: Annotated[LakeSettings, Described("Location of the tables.")]
    spark: Annotated[SparkSettings, Described("Spark's session and resources.")] = field(
        default_factory=SparkSettings
    )
    tables: Annotated[
        tuple[str, ...] | None,
        Described("Source tables to materialise; by default all, listed when the code location is loaded."),
    ] = None
    initial_copy: Annotated[
        bool | None,
        Described(
            "Whether tables that already contain data are copied before the stream takes over; by default "
            "they are, unless `start_timestamp` is set."
        ),
    ] = None
    copy_chunk_rows: Annotated[
        int, Described("Number of rows per chunk, for tables that Spanner does not partition.")
    ] = 25_000
    copy_s: Annotated[
        float,
        Described(
            "Approximate seconds for which a cycle copies tables before it continues with the other tables."
        ),
    ] = 20.0
    max_window_s: Annotated[
        float | None, Described("Maximum seconds of source time per cycle when catching up.")
    ] = 3600.0
    table_options: Annotated[
        Mapping[str, TableOptions],
        Described("Options that keep more of a table than its current rows, by source table."),
    ] = field(default_factory=dict)
    read_tasks: Annotated[
        int,
        Described("Maximum number of Spark tasks that share the partitions, files or messages of a read."),
    ] = 8
    local_read_s: Annotated[
        float,
        Described(
            "Maximum seconds of a change stream that the cycle's process reads itself, as it reads a few "
            "small files or messages; 0 leaves all reading to Spark."
        ),
    ] = 15.0
    local_merge_bytes: Annotated[
        int,
        Described(
            "Maximum bytes of net changes that the cycle's process merges itself; 0 leaves all merging to "
            "Spark."
        ),
    ] = 64 * 1024 * 1024
    idle_interval_s: Annotated[float, Described("Seconds to wait after a cycle without new data.")] = 1.0
    check_every_s: Annotated[
        float | None,
        Described(
            "Seconds between two runs of the checks on new log entries within a run; empty means no checks."
        ),
    ] = 60.0
    fail_on_quarantine: Annotated[
        bool,
        Described("Whether records in quarantine fail the check `quarantine_empty`, which otherwise warns."),
    ] = False
    maintenance: Annotated[MaintenanceSettings, Described("Settings that keep the lake fast.")] = field(
        default_factory=MaintenanceSettings
    )

    def __post_init__(self) -> None:
        check_identifier(self.name)
        if self.name.endswith("__cdc"):
            raise SettingError(
                "name", f"must not end in `__cdc`, which marks the platform's own tables: {self.name}"
            )
        if self.tables == ():
            raise SettingError("tables", "names no table; leave it out for all tables of the source")
        for number, table in enumerate(self.tables or ()):
            if not table.strip() or table in (self.tables or ())[:number]:
                problem = "is empty" if not table.strip() else f"names {table} a second time"
                raise SettingError(f"tables.{number}", f"{problem}; remove it")
        other_names = set(self.table_options) - set(self.tables or self.table_options)
        if other_names:
            raise SettingError(
                f"table_options.{min(other_names)}",
                f"belongs to no table of the setting `tables`, which names {', '.join(self.tables or ())}",
            )
        place = "lake.catalog.warehouse" if self.lake.catalog.get("warehouse") else "lake.path"
        location = self.lake.catalog.get("warehouse") or self.lake.shown_path
        if self.source.reads(location):
            raise SettingError(
                place,
                f"lies in the source's folder, {self.source.folder}, so its own files would be read as "
                f"events; choose a folder outside it. It is: {location}",
            )
        check_range(self, ("max_window_s",), above=0)
        check_range(self, ("read_tasks", "copy_chunk_rows"), at_least=1)
        not_negative = ("copy_s", "local_read_s", "local_merge_bytes", "idle_interval_s", "check_every_s")
        check_range(self, not_negative, at_least=0)

    @property
    def copies_first(self) -> bool:
        """Whether a table that is not in a cut yet begins with a copy."""
        if self.initial_copy is None:
            return self.capabilities.can_be_copied and self.source.begins_at_present
        return self.initial_copy

    @property
    def capabilities(self) -> SourceCapabilities:
        """Guarantees of the source about its changes."""
        return self.source.capabilities
