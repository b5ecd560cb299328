"""Reports of a cycle on its files or partitions, on the stream and on its window."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.read_windows import ReadWindow, WindowOutcome, WindowReport
from cdc_platform.model.stream.records import AGAIN_SINCE
from cdc_platform.sources.debezium.settings.engine_settings import MARKER_PREFIX
from cdc_platform.sources.debezium.splits.outcome import SplitOutcome
from cdc_platform.sources.debezium.transactions.progress import PASSED, STATE, PassedUntil
from cdc_platform.sources.debezium.transactions.transaction_buffer import Admission
from cdc_platform.sources.debezium.transactions.transactions import EVENTS, FAULTS, NAME
from cdc_platform.sources.event_batches import EventBatches, FileCounts


@dataclass(frozen=True)
class Reading:
    """Messages that were read.

    Args:
        files: files or partitions, by origin.
        progress: text for the read progress, for each file or partition that was read.
        failed: error of each one that could not be read.
    """

    files: Mapping[str, SourceFile]
    progress: Mapping[str, str]
    failed: Mapping[str, str] = field(default_factory=dict)


def report_batches(
    reading: Reading, outcome: SplitOutcome, admission: Admission, batches: EventBatches, window: ReadWindow
) -> Iterator[pa.RecordBatch]:
    """Yield the reports and the logical messages that pass.

    Args:
        reading: messages that were read.
        outcome: outcome of all splits.
        admission: transactions that may pass.
        batches: receives the rows.
        window: window of the stream.
    """
    files, counts = reading.files, _counts(outcome.places, admission)
    for name, notes in outcome.notes.items():
        for note, origin, _ in notes if name not in admission.excluded else ():
            is_waiting = not name and admission.holds_back(note.ordering_key)
            if not (is_waiting or note.prefix.startswith(MARKER_PREFIX)):
                batches.add_message(note, window, files[origin])
    for origin, text in reading.progress.items():
        batches.report_file(window, replace(files[origin], reported_version=text), counts[origin])
    for origin, error in reading.failed.items():
        batches.report_file(window, files[origin], counts[origin], error)
    state = SourceFile(STATE, "", 0, 0, outcome.state)
    further = {
        "waiting": [asdict(transaction) for transaction in admission.waiting],
        AGAIN_SINCE: admission.again_since_micros,
    }
    batches.report_file(window, state, FileCounts(), further=further)
    until = _with_truncates(admission, outcome)
    batches.report_file(window, SourceFile(PASSED, "", 0, 0, until.to_text()), FileCounts())
    report = WindowReport(
        window.token, window.start_exclusive_micros, window.end_inclusive_micros, WindowOutcome.COMPLETE
    )
    batches.report_window(report, sum(count.events + count.faults for count in counts.values()))
    yield from batches.take()


def _counts(places: pa.Table, admission: Admission) -> defaultdict[str, FileCounts]:
    """Return the number of rows of each file that pass."""
    is_excluded = pc.is_in(places[NAME], value_set=pa.array(admission.excluded, pa.string()))
    sums = (
        places.filter(pc.invert(is_excluded)).group_by("origin").aggregate([(EVENTS, "sum"), (FAULTS, "sum")])
    )
    columns = (sums[name].to_pylist() for name in ("origin", f"{EVENTS}_sum", f"{FAULTS}_sum"))
    passing: defaultdict[str, FileCounts] = defaultdict(FileCounts)
    passing.update((origin, FileCounts(*counts)) for origin, *counts in zip(*columns, strict=True))
    return passing


def _with_truncates(admission: Admission, outcome: SplitOutcome) -> PassedUntil:
    """Return how far transactions have passed, including truncates that enter the log."""
    positions = dict(admission.until.truncated)
    has_faults = pc.greater(outcome.places[FAULTS], 0)
    faulty = frozenset(outcome.places.filter(has_faults)[NAME].to_pylist()) if outcome.truncates else ()
    for name, table, ordering_key in outcome.truncates:
        if _enters(name, ordering_key, admission, faulty):
            positions[table] = max(ordering_key, positions.get(table, ""))
    return replace(admission.until, truncated=positions)


def _enters(name: str, ordering_key: str, admission: Admission, faulty: Collection[str]) -> bool:
    """Return whether a truncate enters the log; one in a transaction with a faulty event does not."""
    if not name:
        return not admission.holds_back(ordering_key)
    return name not in admission.excluded and name not in admission.faults and name not in faulty
