"""Replaying records in quarantine: one commit requests it, and the next cycle does it.

In a log that is in order, a replayed change has the ordering key that it would have had, but a later
ordinal: the affected tables are rebuilt by ordering keys.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.quarantine import ReplayMark, load_quarantine, mark_replayed
from cdc_platform.lake.state.read_progress import load_read_progress
from cdc_platform.model.base.stored_names import LOG, RAW
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.model.stream.files import READ_AGAIN
from cdc_platform.model.stream.quarantined_records import (
    QuarantinedRecord,
    QuarantineFilter,
    ReplaySource,
    with_related,
)
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_step import pipeline_step

TEXTS_OF_A_CYCLE: Final = 20_000
"""Maximum number of texts replayed per cycle, except for larger transactions: its process decodes them."""
BYTES_OF_A_CYCLE: Final = 64 * 1024**2
"""The same for their letters."""


@dataclass(frozen=True)
class ReplayOutcome:
    """Summary of a replay request.

    Args:
        from_files: records whose files are read again.
        files: the files.
        from_texts: records that are decoded again from their texts.
        from_records: records whose transactions are processed again from the lake's raw records.
        unreadable: records that stay in quarantine because nothing is left to read them from.
    """

    from_files: tuple[QuarantinedRecord, ...] = ()
    files: tuple[str, ...] = ()
    from_texts: tuple[QuarantinedRecord, ...] = ()
    from_records: tuple[QuarantinedRecord, ...] = ()
    unreadable: tuple[QuarantinedRecord, ...] = ()


@pipeline_step("replay")
def replay_records(pipeline: Pipeline, chosen_by: QuarantineFilter) -> ReplayOutcome:
    """Request the replay of records in quarantine; a repeated request is idempotent.

    A file is read again as a whole, so all of its records are replayed together. Records of topics, or of
    files that no longer exist, are decoded again from their texts; transactions are processed again from
    their raw records.

    Raises:
        SourceError: the source does not list its files.
        CommitConflict: other runs were in the way; nothing was changed.
    """
    cycle = read_mark(pipeline.lake.system_table(RAW)).cycle
    records = _undone(pipeline)
    capabilities = pipeline.capabilities
    keeps_transactions = capabilities.keeps_transactions
    matching = [record for record in records if chosen_by.matches(record)]
    if not capabilities.delivers_events:
        selection = with_related(matching, records, keeps_transactions=keeps_transactions)
        mark = ReplayMark(clock_micros(), cycle, ReplaySource.RECORDS)
        mark_replayed(pipeline.lake, {record.identity: mark for record in selection})
        return ReplayOutcome(from_records=tuple(selection))
    readable = pipeline.event_source.readable(
        {record.origin for record in records if record.origin is not None}
    )
    selection = with_related(
        matching,
        records,
        readable,
        keeps_transactions=keeps_transactions,
        pairs_halves=capabilities.comes_in_order,
    )
    from_files = [record for record in selection if record.origin in readable]
    texts, unreadable = _divide(record for record in selection if record.origin not in readable)
    mark_replayed(
        pipeline.lake, dict(_marks([record for record in from_files if record.is_open], texts, cycle))
    )
    files = sorted({record.origin for record in from_files if record.origin is not None})
    return ReplayOutcome(tuple(from_files), tuple(files), tuple(texts), unreadable=tuple(unreadable))


def _undone(pipeline: Pipeline) -> list[QuarantinedRecord]:
    """Return open records and records that wait for files, which may no longer exist since the request."""
    read_progress = load_read_progress(pipeline.lake) if pipeline.capabilities.delivers_events else {}
    log_cycle = read_mark(pipeline.lake.system_table(LOG)).cycle
    return [
        record
        for record in load_quarantine(pipeline.lake, with_replayed=True)
        if record.cycle <= log_cycle and (record.is_open or _awaits_file(record, read_progress))
    ]


def _awaits_file(record: QuarantinedRecord, read_progress: Mapping[str, str]) -> bool:
    return record.replayed_from is ReplaySource.FILE and read_progress.get(record.origin or "") == READ_AGAIN


def _divide(records: Iterable[QuarantinedRecord]) -> tuple[list[QuarantinedRecord], list[QuarantinedRecord]]:
    """Return the records with their own text, and the others, which represent whole files."""
    texts: list[QuarantinedRecord] = []
    unreadable: list[QuarantinedRecord] = []
    for record in records:
        event = record.event
        stands_for_file = event.get("fault") is not None and event.get("position") is None
        (unreadable if stands_for_file else texts).append(record)
    return texts, unreadable


def _marks(
    from_files: Sequence[QuarantinedRecord], texts: Sequence[QuarantinedRecord], cycle: int
) -> Iterator[tuple[tuple[int, str], ReplayMark]]:
    now_micros = clock_micros()
    of_file = ReplayMark(now_micros, cycle, ReplaySource.FILE)
    yield from ((record.identity, of_file) for record in from_files)
    first_parts: dict[tuple[int, str | None], int] = {}
    letters = accumulate((len(record.record or "") for record in texts), initial=0)
    for number, (record, before) in enumerate(zip(texts, letters, strict=False)):
        part = number // TEXTS_OF_A_CYCLE + before // BYTES_OF_A_CYCLE
        first = first_parts.setdefault((record.moment_micros, record.transaction_id), part)
        yield record.identity, replace(of_file, micros=now_micros + first, source=ReplaySource.TEXT)
