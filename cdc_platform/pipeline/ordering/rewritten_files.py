"""Rewritten files: closes the records that their older versions left in quarantine.

A file may be read before it is complete, and a faulty file may be repaired. The newer version is read without
a request, and whole, as in a replay, so nothing of the older version remains to be done.
"""

import time
from collections.abc import Mapping, Sequence

from cdc_platform.lake.catalog.lake import LOG, RAW
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.commits.filters import all_of, equals, is_any
from cdc_platform.lake.state.quarantine import QuarantinedPlace, ReplayMark, mark_replayed, open_places
from cdc_platform.lake.state.read_progress import ReadFile, last_reads
from cdc_platform.model.stream.files import is_of_file, is_of_version
from cdc_platform.model.stream.quarantined_records import ReplaySource
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.opened.pipeline import Pipeline


def close_rewritten(pipeline: Pipeline) -> int:
    """Mark records in quarantine as replayed if a newer version of their file has them; return their number.

    An event that the newer version lacks stays open, because nothing else shows that it is missing.

    Raises:
        CommitConflict: other runs committed at the same time; nothing was changed.
    """
    places = open_places(pipeline.lake)
    reads = last_reads(pipeline.lake, {place.origin for place in places}) if places else {}
    ordered = read_mark(pipeline.lake.system_table(LOG)).cycle
    older = [
        place
        for place in places
        if place.origin in reads and place.cycle < reads[place.origin].cycle <= ordered
    ]
    events = _find_events(pipeline, older, reads)
    now_micros = time.time_ns() // 1000
    marks = {
        place.identity: ReplayMark(now_micros, place.cycle, ReplaySource.FILE)
        for place in older
        if (place.origin, place.sequence) in events or _is_replaced(place, reads[place.origin])
    }
    mark_replayed(pipeline.lake, marks)
    return len(marks)


def _is_replaced(place: QuarantinedPlace, read: ReadFile) -> bool:
    """Return whether a record's only identity is its place in a replaced version of the file."""
    is_version = is_of_version(place.sequence, place.origin, read.version)
    return is_of_file(place.sequence, place.origin) and not is_version


def _find_events(
    pipeline: Pipeline, older: Sequence[QuarantinedPlace], reads: Mapping[str, ReadFile]
) -> set[tuple[str, str]]:
    """Return the origin and the sequence of events that the newest read of their file contains."""
    events = [place for place in older if not is_of_file(place.sequence, place.origin)]
    if not events:
        return set()
    is_reread = all_of(
        equals("kind", RecordKind.DATA_CHANGE.value),
        is_any("cycle", {reads[place.origin].cycle for place in events}),
        is_any("record_sequence", {place.sequence for place in events}),
    )
    fields = ("kind", "cycle", "record_sequence", "event")
    rows = pipeline.lake.system_table(RAW).scan(is_reread, selected_fields=fields).to_arrow().to_pylist()
    return {
        (origin, row["record_sequence"])
        for row in rows
        if (origin := row["event"]["origin"]) in reads and reads[origin].cycle == row["cycle"]
    }
