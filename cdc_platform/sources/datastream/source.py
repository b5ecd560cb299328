"""The source for files that Datastream writes."""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_platform.errors import CdcError
from cdc_platform.model.base.cached_values import cached_value
from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.files import FileChoice, SourceFile, choose_files, resolved_failures
from cdc_platform.model.stream.lineage import Lineage
from cdc_platform.model.stream.read_windows import ReadPlan, ReadRequest
from cdc_platform.model.stream.window_plans import plan_arrivals
from cdc_platform.sources.arrival import ArrivalTimeSource, storable, table_of
from cdc_platform.sources.datastream.files.file_events import decode_file, decode_text
from cdc_platform.sources.datastream.files.files import SUFFIXES
from cdc_platform.sources.datastream.files.schema_files import (
    SCHEMA_SUFFIXES,
    Offers,
    borrowed_schemas,
    is_schema,
    key_of_name,
    offered_schemas,
)
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.values.types import Fields
from cdc_platform.sources.file_store import FileStore
from cdc_platform.sources.spark_source import SparkSource
from cdc_platform.sources.task_plan import TaskPlan

if TYPE_CHECKING:
    import pyarrow as pa


class DatastreamSource(ArrivalTimeSource, SparkSource):
    """Lists the files of a stream, and sets up Spark's reads of those that are new.

    Its clock is this machine's: a file belongs to the cycle that finds it.
    """

    def __init__(self, settings: DatastreamSettings) -> None:
        self.settings = settings
        self._listed: Sequence[SourceFile] | None = None
        """Result of the newest plan."""
        self._offered: dict[str, Offers] = {}
        """Listed files with the columns of a `schema_key`, for the keys that were looked up so far."""

    @cached_value
    def store(self) -> FileStore:
        """The folder of the stream."""
        return FileStore(self.settings.path, (*SUFFIXES, *SCHEMA_SUFFIXES), self.settings.deadline_s)

    def list_tables(self) -> tuple[TableSchema, ...]:
        """Return the tables that have files, each with the columns of its newest file."""
        newest: dict[str, SourceFile] = {}
        files = list(self.store.list_files())
        for file in files:
            if not is_schema(file):
                newest_file = newest.setdefault(file.folder, file)
                newest[file.folder] = max(newest_file, file, key=lambda candidate: candidate.modified_micros)
        offers = offered_schemas(files, newest.values())
        tables = {table.name: table for file in newest.values() for table in self._tables_of(file, offers)}
        return tuple(tables[name] for name in sorted(tables))

    def _tables_of(self, file: SourceFile, offers: Offers) -> Iterator[TableSchema]:
        try:
            data = self.store.read(file.path)
            schemas = borrowed_schemas(self.settings.path, file, offers, data, self.settings.bounds)
            events = decode_file(self.settings, data, schemas)
            tables = map(table_of, storable(events))
            # A delete may have its key only in its metadata, and then shows no column.
            yield from {table.name: table for table in tables if table.key_columns}.values()
        except CdcError:
            # Reading the file reports what is wrong with it.
            return

    def start_micros(self) -> int:
        """Return the beginning of time: all existing files belong to the first cut."""
        _ = self.store
        return super().start_micros()

    def plan(
        self, lineage: Lineage, request: ReadRequest, read_progress: Callable[[], Mapping[str, str]]
    ) -> ReadPlan:
        """Return a window for each object, up to the present, with the unread files; or an empty plan.

        The first partition, `root`, stands for the folder: its windows announce new objects. If a backlog is
        too large for one cycle, all cycles but the last advance the position by one microsecond only, because
        some existing files are still unread. Files that could not be read do not hold the position.
        """
        self._listed = listed_files = list(self.store.list_files())
        self._offered = {}
        objects = [file for file in listed_files if not is_schema(file)]
        progress = read_progress()
        choice = self._choose(objects, progress, lineage, request)
        newest = max((partition.position_micros for partition in lineage.partitions.values()), default=0)
        limit = request.end_limit_micros if choice.is_all else newest + 1
        windows = plan_arrivals(lineage, replace(request, end_limit_micros=limit))
        is_root_read = any(window.token == ROOT_TOKEN for window in windows)
        fresh = sorted({file.folder for file in objects} - lineage.partitions.keys()) if is_root_read else []
        is_unread = any(partition.running_cycle is None for partition in lineage.partitions.values())
        resolved_files = resolved_failures(objects, progress) if is_root_read else {}
        if not (choice.files or fresh or resolved_files or is_unread or request.has_replay):
            return ReadPlan(())
        files = choice.files if windows else ()
        offers = offered_schemas(listed_files, files)
        inputs = {"files": files, "announced": fresh, "resolved": resolved_files, "offers": offers}
        return ReadPlan(windows, inputs, files=len(files), left_since_micros=choice.left_since_micros)

    def _choose(
        self, files: Sequence[SourceFile], versions: Mapping[str, str], lineage: Lineage, request: ReadRequest
    ) -> FileChoice:
        # A folder that has reached the limit of the request has no window: its new files can wait.
        folders = {window.token for window in plan_arrivals(lineage, request)}
        files = [file for file in files if file.folder in folders]
        clock_micros = None if request.ends_pauses else request.clock_micros
        return choose_files(files, versions, self.settings.max_files, self.settings.max_bytes, clock_micros)

    def readable(self, origins: Collection[str]) -> frozenset[str]:
        """Return the files among these that still exist."""
        return self.store.existing(origins)

    def decode_again(
        self, origin: str, text: str, position: int | None, _former_key: str | None = None
    ) -> Iterator[SourceEvent | FaultyEvent]:
        """Yield the events that the text of a faulty event contains under the present settings."""
        return decode_text(self.settings, text, position, lambda: self._borrow_columns(origin, text))

    def _borrow_columns(self, origin: str, text: str) -> Mapping[str, Fields]:
        """Return the columns of an event from other files than its own, which may be gone."""
        file = SourceFile(origin, "", 0, 0)
        key = key_of_name(origin)
        if key not in self._offered:
            files = self._listed if self._listed is not None else list(self.store.list_files())
            self._offered[key] = offered_schemas(files, [file])
        return borrowed_schemas(
            self.settings.path, file, self._offered[key], text.encode(), self.settings.bounds
        )

    def plan_tasks(self, cycle: int, plan: ReadPlan, max_tasks: int) -> TaskPlan:
        """Return the read of the files of a plan in at most `max_tasks` tasks."""
        from cdc_platform.sources.datastream.reader import plan_tasks

        return plan_tasks(self.settings.to_options(), cycle, plan, max_tasks)

    def read_in_process(self, cycle: int, plan: ReadPlan) -> "Generator[pa.RecordBatch, None, None]":
        """Yield the raw records of the files of a plan, read by this process."""
        from cdc_platform.sources.loading import read_tasks

        return read_tasks(self.plan_tasks(cycle, plan, 1))

    def close(self) -> None:
        """Close the connection and clear the cached listing."""
        self.__dict__.pop("store", None)
        self._listed = None
        self._offered = {}
