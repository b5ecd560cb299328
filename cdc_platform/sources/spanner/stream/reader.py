"""Reads of a change stream: few tasks with many windows each, Arrow batches, no JVM code."""

import json
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from cdc_platform.model.base.schemas import RAW_CHANGE_RECORDS
from cdc_platform.model.stream.generations import Generations
from cdc_platform.model.stream.read_windows import ReadPlan, ReadWindow, first_end_micros
from cdc_platform.sources.spanner.client.wire import MISSHAPEN
from cdc_platform.sources.spanner.stream.batches import to_batch
from cdc_platform.sources.spanner.stream.decode import data_row
from cdc_platform.sources.spanner.stream.json_records import data_row as json_data_row
from cdc_platform.sources.spanner.stream.message_records import MESSAGE_PREFIX, data_row_of_text
from cdc_platform.sources.spanner.stream.record_rows import RecordRow
from cdc_platform.sources.task_plan import TaskPlan


def deal_out(windows: Sequence[ReadWindow], max_tasks: int) -> list[tuple[ReadWindow, ...]]:
    """Return the windows of each task; their numbers differ by at most one.

    The windows are ordered by how far back they reach, so every task gets some of the oldest.
    """
    return [tuple(windows[number::max_tasks]) for number in range(min(max_tasks, len(windows)))]


def plan_tasks(settings_json: str, cycle: int, plan: ReadPlan, max_tasks: int) -> TaskPlan:
    """Return the read of the windows of a plan in at most `max_tasks` tasks."""
    reader = partial(_read_windows, settings_json, cycle, plan.finished_parents)
    return TaskPlan(RAW_CHANGE_RECORDS, reader, deal_out(plan.windows, max_tasks))


def _read_windows(
    settings_json: str, cycle: int, parents: Sequence[str] | None, windows: tuple[ReadWindow, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the windows of a task, and for each window the row that reports on it.

    The same applies to children of ending partitions if all their parents have ended before or in the task.
    """
    # Imported here: only workers that read load Google's libraries, and only after the fork.
    from cdc_platform.sources.spanner.client.client import client_of
    from cdc_platform.sources.spanner.stream.window_pool import read_together
    from cdc_platform.sources.spanner.stream.window_reader import read_window

    generations = None if parents is None else Generations(first_end_micros(windows), parents)
    # The client of a worker process is reused by later tasks.
    return read_together(partial(read_window, client_of(settings_json), cycle), windows, generations)


def decode_again(cycle: int, token: str, sequence: str, record_text: str) -> pa.RecordBatch | None:
    """Return the raw record of a malformed record's text; None if it is still malformed.

    Args:
        cycle: the cycle that read it.
        token: the partition that delivered it.
        sequence: its `record_sequence` in the lake, which keeps its identity.
        record_text: the record as stored by `malformed_row`.
    """
    try:
        row = _decode(record_text)
    except MISSHAPEN:
        return None
    return to_batch(cycle, token, [tuple(row._replace(record_sequence=sequence))])


def _decode(record_text: str) -> RecordRow:
    if record_text.startswith("{"):
        return json_data_row(json.loads(record_text))
    if record_text.startswith(MESSAGE_PREFIX):
        return data_row_of_text(record_text)
    return data_row(record_text.encode("latin-1"))
