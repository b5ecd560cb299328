"""Spark data source of Datastream's files: few tasks with many files each, Arrow batches."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cdc_platform.errors import SourceError
from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.base.schemas import RAW_EVENT_RECORDS
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.files import SourceFile, deal_files, files_from_json
from cdc_platform.model.stream.read_windows import ReadPlan, ReadWindow, WindowOutcome, WindowReport
from cdc_platform.model.stream.unread import FailedRead
from cdc_platform.sources.datastream.files.file_events import decode_file
from cdc_platform.sources.datastream.files.files import SUFFIXES
from cdc_platform.sources.datastream.files.schema_files import Offers, borrowed_schemas
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.event_batches import EventBatches, FileCounts
from cdc_platform.sources.file_store import FileStore
from cdc_platform.sources.loading import TaskReader
from cdc_platform.sources.workers import prepare_worker

FORMAT_NAME: Final = "datastream_files"
SETTINGS_OPTION: Final = "settings"
CYCLE_OPTION: Final = "cycle"
PLAN_OPTION: Final = "plan"
TASKS_OPTION: Final = "tasks"


def plan_to_json(plan: ReadPlan) -> str:
    """Return a plan as the text of the `plan` option."""
    return json.dumps({"windows": [asdict(window) for window in plan.windows], **json.loads(plan.inputs)})


@dataclass(frozen=True)
class Task:
    """The input of one task: files, and other facts that it reports."""

    files: tuple[SourceFile, ...]
    windows: tuple[ReadWindow, ...]
    announced: tuple[str, ...] = ()
    resolved: tuple[tuple[str, str], ...] = ()
    offers: Offers = field(default_factory=dict)
    is_first: bool = False


class DatastreamDataSource(DataSource):
    """Format `datastream_files`; options are `settings`, `cycle`, `plan` and `tasks`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT_NAME

    def schema(self) -> StructType:
        """Return the schema of the raw records."""
        prepare_worker()
        return from_arrow_schema(RAW_EVENT_RECORDS)

    def reader(self, schema: StructType) -> TaskReader:  # noqa: ARG002 - Spark's signature
        """Return the reader of the files in the options."""
        prepare_worker()
        plan = json.loads(self.options[PLAN_OPTION])
        windows = tuple(ReadWindow(**fields) for fields in plan["windows"])
        files = deal_files(files_from_json(plan["files"]), int(self.options[TASKS_OPTION]))
        offers = {key: files_from_json(files) for key, files in plan["schemas"].items()}
        tasks = [Task(task, windows, offers=offers) for task in files]
        resolved = tuple(plan["settled"].items())
        tasks[0] = replace(tasks[0], announced=tuple(plan["announced"]), resolved=resolved, is_first=True)
        read = partial(_read_files, self.options[SETTINGS_OPTION], int(self.options[CYCLE_OPTION]))
        return TaskReader(read, tasks)


def _read_files(settings_json: str, cycle: int, task: Task) -> Iterator[pa.RecordBatch]:
    """Yield the events of a task's files, and the rows that report on files, objects and the folder."""
    settings = DatastreamSettings.from_options(settings_json)
    batches = EventBatches(cycle)
    windows = {window.token: window for window in task.windows}
    store = FileStore(settings.path, SUFFIXES, settings.deadline_s)
    records: Counter[str] = Counter()
    for file in task.files:
        window, counts = windows[file.folder], FileCounts()
        try:
            data = store.read(file.path)
            schemas = borrowed_schemas(settings.path, file, task.offers, data, settings.bounds)
        except SourceError as error:
            failure = FailedRead(file.version, time.time_ns() // 1000, f"{type(error).__name__}: {error}")
            batches.report_file(window, file, counts, failure.error, failure.reported_version)
            continue
        yield from _take_events(decode_file(settings, data, schemas), file, window, batches, counts)
        batches.report_file(window, file, counts)
        records[file.folder] += counts.events + counts.faults
    _report(task, batches, windows, records)
    yield from batches.take()


def _take_events(
    events: Iterator[SourceEvent | FaultyEvent],
    file: SourceFile,
    window: ReadWindow,
    batches: EventBatches,
    counts: FileCounts,
) -> Iterator[pa.RecordBatch]:
    for event in events:
        batches.add(event, window, file)
        counts.add(is_fault=isinstance(event, FaultyEvent))
        if batches.is_full:
            yield from batches.take()


def _report(task: Task, batches: EventBatches, windows: dict[str, ReadWindow], records: Counter[str]) -> None:
    for token, window in windows.items():
        if task.is_first or records[token]:
            report = WindowReport(
                token, window.start_exclusive_micros, window.end_inclusive_micros, WindowOutcome.COMPLETE
            )
            announced = len(task.announced) if token == ROOT_TOKEN else 0
            batches.report_window(report, records[token], announced)
    for path, version in task.resolved:
        batches.report_file(windows[ROOT_TOKEN], SourceFile(path, ROOT_TOKEN, 0, 0, version), FileCounts())
    for token in task.announced:
        batches.announce(token, windows[ROOT_TOKEN])
