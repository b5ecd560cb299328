"""Rewritten files: closes the records that their older versions left in quarantine.

A file may be read before it is complete, and a faulty file may be repaired. The newer version is read without
a request, and whole, as in a replay, so nothing of the older version remains to be done.
"""

import time
from collections.abc import Mapping, Sequence

from cdc_platform.lake.catalog.lake import LOG, RAW
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.commits.filters import all_of, equals, is_any
from cdc_platform.lake.state.quarantine import HeldPlace, ReplayMark, mark_replayed, open_places
from cdc_platform.lake.state.read_progress import ReadFile, last_reads
from cdc_platform.model.stream.files import is_of_file, is_of_version
from cdc_platform.model.stream.quarantined_records import ReplaySource
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.core.pipeline import Pipeline


def settle_rewritten(pipeline: Pipeline) -> int:
    """Mark records in quarantine as replayed if a newer version of their file has them; return how many.

    An event that the newer version lacks stays open, because nothing else shows that it is missing.

    Raises:
        CommitConflict: other runs were in the way; nothing was changed.
    """
    held = open_places(pipeline.lake)
    reads = last_reads(pipeline.lake, {one.origin for one in held}) if held else {}
    ordered = read_mark(pipeline.lake.system_table(LOG)).cycle
    older = [one for one in held if one.origin in reads and one.cycle < reads[one.origin].cycle <= ordered]
    known = _find_events(pipeline, older, reads)
    now_micros = time.time_ns() // 1000
    marks = {
        one.identity: ReplayMark(now_micros, one.cycle, ReplaySource.FILE)
        for one in older
        if (one.origin, one.sequence) in known or _is_replaced(one, reads[one.origin])
    }
    mark_replayed(pipeline.lake, marks)
    return len(marks)


def _is_replaced(held: HeldPlace, read: ReadFile) -> bool:
    """Return whether a record's only identity is its place in a version of the file that was replaced."""
    is_version = is_of_version(held.sequence, held.origin, read.version)
    return is_of_file(held.sequence, held.origin) and not is_version


def _find_events(
    pipeline: Pipeline, older: Sequence[HeldPlace], reads: Mapping[str, ReadFile]
) -> set[tuple[str, str]]:
    """Return origin and sequence of the events that the newest read of their file contains."""
    events = [one for one in older if not is_of_file(one.sequence, one.origin)]
    if not events:
        return set()
    is_wanted = all_of(
        equals("kind", RecordKind.DATA_CHANGE.value),
        is_any("cycle", {reads[one.origin].cycle for one in events}),
        is_any("record_sequence", {one.sequence for one in events}),
    )
    fields = ("kind", "cycle", "record_sequence", "event")
    rows = pipeline.lake.system_table(RAW).scan(is_wanted, selected_fields=fields).to_arrow().to_pylist()
    return {
        (origin, row["record_sequence"])
        for row in rows
        if (origin := row["event"]["origin"]) in reads and reads[origin].cycle == row["cycle"]
    }
