"""Output of one cycle's reading: the events that may pass, and the reports on what was read."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

import pyarrow as pa

from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.read_windows import ReadWindow, WindowOutcome, WindowReport
from cdc_platform.model.stream.records import AGAIN_SINCE
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.engine_settings import MARKER_PREFIX
from cdc_platform.sources.debezium.transactions.arrivals import Passed
from cdc_platform.sources.debezium.transactions.progress import STATE
from cdc_platform.sources.event_batches import EventBatches, FileCounts, Released


@dataclass(frozen=True)
class Reading:
    """Messages that have been read.

    Args:
        files: files or partitions, by origin.
        progress: text for the read progress, of each that was read.
        state: what the decoder knows.
        failed: why, of each that could not be read.
        further: other texts for the read progress, by name.
    """

    files: Mapping[str, SourceFile]
    progress: Mapping[str, str]
    state: DecoderState
    failed: Mapping[str, str] = field(default_factory=dict)
    further: Mapping[str, str] = field(default_factory=dict)


def give_out(
    passed: Passed, reading: Reading, batches: EventBatches, window: ReadWindow
) -> Iterator[pa.RecordBatch]:
    """Yield the raw records of what may pass, and of what was read."""
    files = reading.files
    counts: dict[str, FileCounts] = {origin: FileCounts() for origin in files}
    for released, origin in passed.events:
        batches.add_whole(released, window, files[origin])
        _count(counts[origin], released)
        if batches.is_full:
            yield from batches.take()
    for note, origin in passed.messages:
        if not note.prefix.startswith(MARKER_PREFIX):
            batches.add_message(note, window, files[origin])
    for origin, text in reading.progress.items():
        batches.report_file(window, files[origin], counts[origin], version=text)
    for origin, error in reading.failed.items():
        batches.report_file(window, files[origin], counts[origin], error)
    state = SourceFile(STATE, "", 0, 0, reading.state.to_json())
    further = {
        "waiting": [asdict(transaction) for transaction in passed.waiting],
        AGAIN_SINCE: passed.again_since_micros,
    }
    batches.report_file(window, state, FileCounts(), further=further)
    for name, text in reading.further.items():
        batches.report_file(window, SourceFile(name, "", 0, 0, text), FileCounts())
    report = WindowReport(
        window.token, window.start_exclusive_micros, window.end_inclusive_micros, WindowOutcome.COMPLETE
    )
    batches.report_window(report, len(passed.events))
    yield from batches.take()


def _count(counts: FileCounts, released: Released) -> None:
    if isinstance(released.event, FaultyEvent):
        counts.faults += 1
    else:
        counts.events += 1
