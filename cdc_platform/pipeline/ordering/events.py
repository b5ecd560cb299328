"""Ordering of events, with duplicates, keys found by address, rejected events and left-out values."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.lake.commits.commits import count_rows, head, read_mark
from cdc_platform.lake.commits.filters import all_of, equals, is_any
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.lake.state.quarantine import QuarantinedPlace, ReplayMark, load_places, mark_replayed
from cdc_platform.lake.state.read_progress import ReadFile, last_reads
from cdc_platform.model.base.stored_names import LOG, RAW
from cdc_platform.model.base.timestamps import clock_micros, to_datetime
from cdc_platform.model.stream.files import is_of_file, is_of_version
from cdc_platform.model.stream.quarantined_records import QuarantinedRecord, ReplaySource
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.completing.completion import complete_changes, complete_few, complete_moved_rows
from cdc_platform.pipeline.completing.equal_rows import EqualRows
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.addresses import call_waiting, with_keys_by_address
from cdc_platform.pipeline.ordering.final_counts import final_counts
from cdc_platform.pipeline.ordering.key_shifts import with_shifted_keys
from cdc_platform.pipeline.ordering.strategy import Window
from cdc_platform.pipeline.reading.read_reports import (
    has_texts,
    remembered_from,
    repeated_from,
    replayed_origins,
)
from cdc_platform.pipeline.reading.window_content import TypedTable
from cdc_platform.pipeline.schema.key_shapes import fitting_shapes, tables_to_check
from cdc_platform.pipeline.schema.schema_evolution import history_through
from cdc_platform.pipeline.schema.schema_policies import with_refusals
from cdc_platform.pipeline.versions.lake_frames import read_own
from cdc_platform.spark.frames.ranges import range_count
from cdc_platform.spark.frames.table_frames import cache_frame, local_frame
from cdc_platform.spark.log.event_order import (
    Completion,
    WindowFacts,
    count_events,
    further_partial_updates,
    order_events,
    with_whole_key_changes,
    with_whole_transactions,
)
from cdc_platform.spark.log.keyless import number_copies, unnumbered_rows
from cdc_platform.spark.log.order import SINGLE_TASK_RECORDS, UNSOUND, LogStats, OrderedChanges
from cdc_platform.spark.log.ordered_rows import measure_event_rows, number_few, unnumbered_few
from cdc_platform.spark.log.repeats import UNKNOWN_REPEATS, Repeats, find_repeats, without_repeated
from cdc_platform.spark.log.unknown_values import incomplete_changes


@dataclass(frozen=True)
class Events:
    """The strategy for events, which contain their own ordering keys and may come again."""

    pipeline: Pipeline
    spark: SparkSession
    reads_log = True

    @property
    def leaves_deletion_markers(self) -> bool:
        """Whether an older change of a deleted row may still arrive."""
        return not self.pipeline.capabilities.comes_in_order

    def late_records(self, _quarantine: Table, _log: Table) -> tuple[QuarantinedRecord, ...]:
        """Return none: a replayed event is read again."""
        return ()

    @contextmanager
    def ordered(self, raw: DataFrame, window: Window, expected_records: int) -> Iterator[OrderedChanges]:
        """Yield the changes of a window that the log has not had, in the source's order.

        After their commit, quarantined deletes are replayed if their rows have arrived.
        """
        capabilities, condition = self.pipeline.capabilities, window.data_changes
        read_records = raw.where(condition)
        records, repeats = self._new_records(read_records, window, expected_records)
        has_addresses = capabilities.knows_addresses and window.content.may_have_addresses
        if has_addresses and window.content.first_micros is not None:
            records = with_shifted_keys(self.pipeline, records, condition, window.content.first_micros)
            if window.content.has_faults:
                records = with_keys_by_address(self.pipeline, records, raw, condition)
        records, types = self._with_refusals(records, window)
        counts = final_counts(window.content, types, capabilities) if records is read_records else None
        first_ordinal, tables = window.mark.next_ordinal, window.tables_among(self.pipeline.known_tables)
        with ExitStack() as cache:
            doubtful = tables_to_check(window.content.shapes, types)
            facts = WindowFacts(doubtful, window.places, repeats, counts, self._completion(window, cache))
            yield order_events(records, first_ordinal, expected_records, tables, capabilities, facts)
        if has_addresses:
            call_waiting(self.pipeline, raw, read_records)

    def finalise(self, changes: DataFrame, window: Window, cache: ExitStack) -> tuple[DataFrame, LogStats]:
        """Return ordered changes, finalised with the other changes of their transactions, rows and keys."""
        counts = count_events(changes, incomplete_changes(self.pipeline.capabilities))
        if counts.are_final:
            return changes, counts.stats
        if counts.unsound:
            changes = self._whole(changes)
        if counts.unnumbered:
            copies = self._equal_rows(window).count(unnumbered_rows(changes))
            changes = cache_frame(cache, number_copies(changes, copies))
        if counts.incomplete:
            changes = complete_changes(self.pipeline, self.spark, changes, window.mark.cycle, cache)
        if counts.unsound:
            return changes, count_events(changes).stats
        # Numbers and completed values change nothing else that is counted.
        if not counts.incomplete:
            return changes, counts.stats
        before = {name: table.partial_updates for name, table in counts.stats.tables.items()}
        return changes, counts.stats.with_further(further_partial_updates(changes, before))

    def finalise_few(self, rows: pa.Table, window: Window) -> tuple[pa.Table, LogStats] | None:
        """Return the same for a small batch of changes; None if its values may be too large."""
        if pc.any(rows[UNSOUND]).as_py():
            rows = self._whole(local_frame(self.spark, rows)).toArrow().sort_by("ordinal")
        row_digests = unnumbered_few(rows)
        if row_digests:
            rows = number_few(rows, self._equal_rows(window).count_few(row_digests))
        if self.pipeline.capabilities.leaves_values_out:
            complete_rows = complete_few(self.pipeline, self.spark, rows, window.mark.cycle)
            return (complete_rows, measure_event_rows(complete_rows)) if complete_rows is not None else None
        return rows, measure_event_rows(rows)

    def late_tables(self, window: Window, stats: LogStats) -> tuple[str, ...]:
        """Return the tables with changes after a replay; without an order of arrival no change is late."""
        is_late = self.pipeline.capabilities.comes_in_order and has_texts(self.pipeline, window.reports)
        return tuple(stats.tables) if is_late else ()

    def finish(self) -> None:
        """Resolve the records in quarantine whose file was read again."""
        if not self.pipeline.capabilities.comes_in_order:
            # The other sources continue a file after the part that they have read.
            resolve_rewritten(self.pipeline)

    def _new_records(self, records: DataFrame, window: Window, count: int) -> tuple[DataFrame, Repeats]:
        """Return the raw records of a window that the log has not had, and the repeats of a large window."""
        is_large = count > SINGLE_TASK_RECORDS
        if not window.mark.next_ordinal:
            tasks = range_count(records, count)
            return records, find_repeats(records, None, tasks) if is_large else UNKNOWN_REPEATS
        replays = replayed_origins(self.pipeline, window.reports)
        again_micros = repeated_from(self.pipeline, window.reports)
        log = read_own(self.pipeline, self.spark, LOG, window.log)
        if not replays:
            # Both bounds save reading older files of the log.
            oldest_micros = remembered_from(self.pipeline, window.mark.position_micros or 0, again_micros)
            log = log.where(F.col("commit_timestamp") >= F.lit(to_datetime(oldest_micros)))
            log = log.where(window.content.earlier_changes_sql)
        repeats = UNKNOWN_REPEATS
        if is_large:
            # An upper bound of the identities to compare.
            tasks = range_count(records, count + (count_rows(head(window.log)) or 0))
            repeats = find_repeats(records, log, tasks)
        if not repeats.in_log:
            return records, repeats
        return without_repeated(records, log, self.pipeline.capabilities, replays, again_micros), repeats

    def _completion(self, window: Window, cache: ExitStack) -> Completion | None:
        """Return the completion of a window before it is ordered, if few of its changes may need it."""
        values, cycle = window.content.values, window.mark.cycle
        if values is None or not values.lacks_of_new or not self.pipeline.capabilities.leaves_values_out:
            return None
        return partial(complete_moved_rows, self.pipeline, self.spark, cycle, cache)

    def _with_refusals(self, records: DataFrame, window: Window) -> tuple[DataFrame, Sequence[TypedTable]]:
        """Return records with faults for events that tables reject, and the shapes whose values fit."""
        if not self.pipeline.capabilities.comes_in_order:
            history = history_through(self.pipeline, window.mark.cycle)
            records = with_refusals(self.pipeline, records, window.content, history)
        # A former version may have read the records that are replayed unchanged.
        is_replay = has_texts(self.pipeline, window.reports)
        return records, () if is_replay else fitting_shapes(self.pipeline, window.content.typed_tables())

    def _whole(self, changes: DataFrame) -> DataFrame:
        """Return ordered changes; a change is only sound if its transaction and its other half are."""
        if self.pipeline.capabilities.keeps_transactions:
            return with_whole_transactions(changes)
        return with_whole_key_changes(changes) if self.pipeline.capabilities.comes_in_order else changes

    def _equal_rows(self, window: Window) -> EqualRows:
        log = read_own(self.pipeline, self.spark, LOG, window.log)
        return EqualRows(self.pipeline, self.spark, window.mark.cycle, log)


def resolve_rewritten(pipeline: Pipeline) -> None:
    """Close the records in quarantine that a newer version of their file has, and find what it lacks.

    A file may be read before it is complete, and a faulty one may be repaired. Its newer version is read
    whole, without a request. An event that it lacks stays open: nothing else shows that it is missing. If
    its replay was requested, its text is replayed.

    Raises:
        CommitConflict: other runs committed at the same time; nothing was changed.
    """
    places = load_places(pipeline.lake)
    if not places:
        return
    reads = last_reads(pipeline.lake, {place.origin for place in places})
    cut = newest_cut(pipeline.lake)
    cycles = cut.cycle if cut is not None else 0, read_mark(pipeline.lake.system_table(LOG)).cycle
    reread_places = [
        place for place in places if place.origin in reads and _is_reread(place, reads[place.origin], *cycles)
    ]
    events, marks, now_micros = _find_events(pipeline, reread_places, reads), {}, clock_micros()
    for place in reread_places:
        has_event = (place.origin, place.sequence) in events
        if place.replayed_cycle is None and (has_event or _is_replaced(place, reads[place.origin])):
            marks[place.identity] = ReplayMark(now_micros, place.cycle, ReplaySource.FILE)
        elif (
            place.replayed_cycle is not None
            and not has_event
            and not is_of_file(place.sequence, place.origin)
        ):
            marks[place.identity] = ReplayMark(now_micros, place.replayed_cycle, ReplaySource.TEXT)
    mark_replayed(pipeline.lake, marks)


def _is_reread(place: QuarantinedPlace, newest_read: ReadFile, cut_cycle: int, log_cycle: int) -> bool:
    """Return whether the log has a read of a record's file that may decide on the record.

    One before the newest cut has decided on the replays that it brought.
    """
    if place.replayed_cycle is None:
        return place.cycle < newest_read.cycle <= log_cycle
    return max(place.replayed_cycle, cut_cycle) < newest_read.cycle <= log_cycle


def _is_replaced(place: QuarantinedPlace, newest_read: ReadFile) -> bool:
    """Return whether a record's only identity is its place in a replaced version of the file."""
    is_version = is_of_version(place.sequence, place.origin, newest_read.version)
    return is_of_file(place.sequence, place.origin) and not is_version


def _find_events(
    pipeline: Pipeline, places: Sequence[QuarantinedPlace], reads: Mapping[str, ReadFile]
) -> set[tuple[str, str]]:
    """Return the origin and the sequence of events that the newest read of their file contains."""
    events = [place for place in places if not is_of_file(place.sequence, place.origin)]
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
