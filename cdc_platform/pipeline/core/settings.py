"""Everything that a pipeline is told: one source, one folder of the lake, one Spark."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cdc_platform.errors import SettingError
from cdc_platform.lake.catalog.settings import LakeSettings
from cdc_platform.model.base.names import check_identifier
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.stream.source_capabilities import SourceCapabilities
from cdc_platform.pipeline.core.source import SourceSettings
from cdc_platform.spark.session.settings import SparkSettings

KEPT_SNAPSHOTS_MIN: Final = 10
"""Compaction puts a few snapshots on top of the one that carries the newest cycle."""


@dataclass(frozen=True)
class MaintenanceSettings:
    """How the lake is kept fast.

    Args:
        minor_every_cycles: cycles between two compactions of small files.
        expire_every_cycles: how many snapshots must be old enough before they are expired.
        small_file_bytes: files below it are rewritten by a minor compaction.
        keep_every_cut_s: how long every cut stays readable; of the time before, one a minute does, and
            beyond an hour one each quarter of an hour.
        keep_snapshots_s: how long any cut stays readable.
        keep_snapshots: how many of the newest snapshots stay whatever their age.
        keep_metadata_s: least seconds for which a metadata file stays after a newer one has replaced it.
        major_deleted_fraction: share of a table's rows that may be deleted ones before the
            large files are rewritten too.
    """

    minor_every_cycles: int = 6
    expire_every_cycles: int = 120
    small_file_bytes: int = 8 * 1024 * 1024
    keep_every_cut_s: float = 600
    keep_snapshots_s: float = 24 * 3600
    keep_snapshots: int = 50
    keep_metadata_s: float = 3600
    major_deleted_fraction: float = 0.2

    def __post_init__(self) -> None:
        if self.minor_every_cycles < 1 or self.expire_every_cycles < 1:
            raise SettingError("maintenance", "needs at least one cycle between two of its runs")
        if self.keep_snapshots < KEPT_SNAPSHOTS_MIN:
            raise SettingError(
                "maintenance.keep_snapshots",
                f"must be at least {KEPT_SNAPSHOTS_MIN}, since snapshots are what tells how far the pipeline "
                f"has come, but is: {self.keep_snapshots}",
            )


@dataclass(frozen=True)
class PipelineSettings:
    """One source feeding one folder of the lake.

    Args:
        name: names the namespaces `NAME` and `NAME__cdc` of the lake.
        source: what is read.
        lake: where the tables are.
        spark: what does the work.
        tables: source tables to materialise; None means all that the change stream watches.
        initial_copy: whether tables that hold data already are copied before the stream takes over; None
            means that they are where `source.start_timestamp` is not given.
        copy_chunk_rows: about how many rows one task copies of a table that Spanner does not cut itself.
        copy_s: about how long a cycle copies before it goes on with the other tables.
        table_options: what is kept of some of them beyond their current rows, by source table.
        read_tasks: most Spark tasks that share the partitions of a read; each reads several at a time.
        max_window_s: most source time that one cycle reads; bounds a cycle's size when catching up.
        read_here_s: a cycle that covers no more source time is read by the process that runs it, which is
            quicker for a few thousand records; 0 leaves all reading to Spark's tasks.
        merge_here_bytes: whole rows that take no more, once a cycle's changes are folded, are merged by the
            process that runs it, which is quicker than Spark's plan; 0 leaves all merging to Spark.
        idle_interval_s: pause of continuous running after a cycle that found nothing.
        check_every_s: pause between two looks of the checks at what continuous running has logged since the
            last one; None means that there is none.
        fail_on_quarantine: whether records in quarantine fail a check instead of only causing a warning.
        maintenance: how the lake is kept fast.
    """

    name: str
    source: SourceSettings
    lake: LakeSettings
    spark: SparkSettings = field(default_factory=SparkSettings)
    tables: tuple[str, ...] | None = None
    initial_copy: bool | None = None
    copy_chunk_rows: int = 25_000
    copy_s: float = 20.0
    table_options: Mapping[str, TableOptions] = field(default_factory=dict)
    read_tasks: int = 8
    max_window_s: float | None = 3600
    read_here_s: float = 15.0
    merge_here_bytes: int = 64 * 1024 * 1024
    idle_interval_s: float = 1.0
    check_every_s: float | None = 60.0
    fail_on_quarantine: bool = False
    maintenance: MaintenanceSettings = field(default_factory=MaintenanceSettings)

    def __post_init__(self) -> None:
        check_identifier("name", self.name)
        if self.name.endswith("__cdc"):
            raise SettingError(
                "name", f"must not end in `__cdc`, which marks the platform's own tables: {self.name}"
            )
        if self.tables == ():
            raise SettingError("tables", "names no table; leave it out for all that the source has")
        unknown = set(self.table_options) - set(self.tables or self.table_options)
        if unknown:
            raise SettingError(
                f"table_options.{min(unknown)}",
                f"belongs to no table of the setting `tables`, which names {', '.join(self.tables or ())}",
            )
        self._check_numbers()

    def _check_numbers(self) -> None:
        for name in ("max_window_s", "copy_s", "read_here_s", "idle_interval_s", "check_every_s"):
            if not math.isfinite(getattr(self, name) or 0):
                raise SettingError(name, f"must be a finite number: {getattr(self, name)}")
        if self.max_window_s is not None and self.max_window_s <= 0:
            raise SettingError("max_window_s", f"must be positive: {self.max_window_s}")
        if self.read_tasks < 1:
            raise SettingError("read_tasks", f"must be at least 1: {self.read_tasks}")
        if self.copy_chunk_rows < 1:
            raise SettingError("copy_chunk_rows", f"must be at least 1: {self.copy_chunk_rows}")
        for name in ("copy_s", "read_here_s", "merge_here_bytes", "idle_interval_s", "check_every_s"):
            if (getattr(self, name) or 0) < 0:
                raise SettingError(name, f"must not be negative: {getattr(self, name)}")

    @property
    def copies_first(self) -> bool:
        """Whether a table that no cut has named yet begins with a copy."""
        if self.initial_copy is None:
            return self.capabilities.can_be_copied and self.source.begins_at_present
        return self.initial_copy

    @property
    def capabilities(self) -> SourceCapabilities:
        """What the source promises of its changes."""
        return self.source.capabilities
