"""Reads of Datastream's files: few tasks with many files each, Arrow batches."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from cdc_platform.errors import SourceError
from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.base.schemas import RAW_EVENT_RECORDS
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.model.stream.events import ChangeRun, FaultyEvent
from cdc_platform.model.stream.files import SourceFile, deal_files
from cdc_platform.model.stream.read_windows import ReadPlan, ReadWindow, WindowOutcome, WindowReport
from cdc_platform.sources.datastream.files.file_events import file_decoder
from cdc_platform.sources.datastream.files.files import SUFFIXES
from cdc_platform.sources.datastream.files.schema_files import Offers, borrowed_schemas
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.event_batches import EventBatches, FileCounts
from cdc_platform.sources.file_store import FileStore
from cdc_platform.sources.task_plan import TaskPlan


@dataclass(frozen=True)
class Task:
    """The input of one task: files, and other facts that it reports."""

    files: tuple[SourceFile, ...]
    windows: tuple[ReadWindow, ...]
    announced: Sequence[str] = ()
    resolved: Mapping[str, str] = field(default_factory=dict)
    offers: Offers = field(default_factory=dict)
    is_first: bool = False


def plan_tasks(settings_json: str, cycle: int, plan: ReadPlan, max_tasks: int) -> TaskPlan:
    """Return the read of the files of a plan in at most `max_tasks` tasks."""
    inputs = plan.inputs
    files = deal_files(inputs["files"], max_tasks)
    tasks = [Task(task, plan.windows, offers=inputs["offers"]) for task in files]
    tasks[0] = replace(tasks[0], announced=inputs["announced"], resolved=inputs["resolved"], is_first=True)
    return TaskPlan(RAW_EVENT_RECORDS, partial(_read_files, settings_json, cycle), tasks)


def _read_files(settings_json: str, cycle: int, task: Task) -> Iterator[pa.RecordBatch]:
    """Yield the events of a task's files, and the rows that report on files, objects and the folder."""
    settings = DatastreamSettings.from_options(settings_json)
    batches, decoder = EventBatches(cycle), file_decoder(settings_json)
    windows = {window.token: window for window in task.windows}
    store = FileStore(settings.path, SUFFIXES, settings.deadline_s)
    records: Counter[str] = Counter()
    for file in task.files:
        window, counts = windows[file.folder], FileCounts()
        try:
            data = store.read(file.path)
            schemas = borrowed_schemas(settings.path, file, task.offers, data, settings.bounds)
        except SourceError as error:
            tried = {"tried_micros": clock_micros()}
            batches.report_file(window, file, counts, f"{type(error).__name__}: {error}", further=tried)
            continue
        for result in decoder.runs(data, schemas):
            _add(result, file, window, batches, counts)
            if batches.is_full:
                yield from batches.take()
        batches.report_file(window, file, counts)
        records[file.folder] += counts.events + counts.faults
    _report(task, batches, windows, records)
    yield from batches.take()


def _add(
    result: ChangeRun | FaultyEvent,
    file: SourceFile,
    window: ReadWindow,
    batches: EventBatches,
    counts: FileCounts,
) -> None:
    if isinstance(result, FaultyEvent):
        batches.add(result, window, file)
        counts.faults += 1
    else:
        batches.add_run(result, window, file.path)
        counts.events += len(result)


def _report(task: Task, batches: EventBatches, windows: dict[str, ReadWindow], records: Counter[str]) -> None:
    for token, window in windows.items():
        if task.is_first or records[token]:
            report = WindowReport(
                token, window.start_exclusive_micros, window.end_inclusive_micros, WindowOutcome.COMPLETE
            )
            announcements = len(task.announced) if token == ROOT_TOKEN else 0
            batches.report_window(report, records[token], announcements)
    for path, version in task.resolved.items():
        batches.report_file(windows[ROOT_TOKEN], SourceFile(path, ROOT_TOKEN, 0, 0, version), FileCounts())
    for token in task.announced:
        batches.announce(token, windows[ROOT_TOKEN])
