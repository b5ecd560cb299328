"""Interpretation of Datastream's events: the change of a row, or the reason why there is none."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.base.timestamps import is_moment
from cdc_platform.model.stream.events import ChangeRun, FaultyEvent, SourceEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.datastream.events.envelope import to_text
from cdc_platform.sources.datastream.events.event_runs import EventRun
from cdc_platform.sources.datastream.events.layouts import LAYOUT_MEMBERS, Form, Layouts, layout_values
from cdc_platform.sources.datastream.events.ordering_keys import OrderRules, ordering_keys, sequence_keys
from cdc_platform.sources.datastream.events.positions import PositionRules
from cdc_platform.sources.datastream.events.row_changes import (
    OrderedRun,
    metadata_texts,
    removals_of,
    writes_of,
)
from cdc_platform.sources.datastream.events.row_keys import digest_of
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.settings.declarations import event_identity
from cdc_platform.sources.datastream.settings.kinds import is_backfill, kind_of_lsn, source_kind
from cdc_platform.sources.datastream.settings.policies import BackfillPolicy
from cdc_platform.sources.datastream.values.rows import problem_of
from cdc_platform.sources.sound_rows import by_halves

_READS: Final = frozenset({"READ", "BACKFILL"})
"""Change types that MongoDB's backfill may give to a document."""
_REMOVALS: Final = frozenset({"DELETE", "UPDATE-DELETE"})
_WRITES: Final[Mapping[str, ModType]] = {
    "": ModType.INSERT,
    "INSERT": ModType.INSERT,
    "CREATE": ModType.INSERT,
    **dict.fromkeys(_READS, ModType.SNAPSHOT),
    "UPDATE": ModType.UPDATE,
    "UPDATE-INSERT": ModType.UPDATE,
    "REPLACE": ModType.UPDATE,
}
_MARKS: Final[Mapping[str, bool]] = {"true": True, "false": False}
_FORM_MEMBERS: Final = ("change_type", "is_deleted", *LAYOUT_MEMBERS)
_REFUSALS: Final = (RecordUnreadable, *MALFORMED)


class Interpreter:
    """Interprets events by the settings of one pipeline; it caches only layouts.

    The result depends only on the event and the settings, so a replay of an event returns the same change,
    and neither the order of events nor their distribution over runs matters.
    """

    def __init__(self, settings: DatastreamSettings) -> None:
        self._declared = settings.source
        self._layouts = Layouts(settings)
        self._rules = OrderRules(
            BackfillPolicy(settings.backfill_policy),
            settings.epoch_micros,
            PositionRules(settings.binlog_basenames, settings.order_by),
        )

    def interpret(self, run: EventRun) -> SourceEvent | FaultyEvent:
        """Return the change of the only event of a run, or the fault that makes it unusable."""
        ((result,),) = map(results_of, self.interpret_run(run))
        return result

    def interpret_run(self, run: EventRun) -> Iterator[ChangeRun | FaultyEvent]:
        """Yield the changes of events, and the faults that make some unusable, in any order."""
        for alike in _alike_runs(run):
            parts: Iterable[Sequence[ChangeRun | FaultyEvent]]
            try:
                form = self._form(alike)
            except _REFUSALS as error:
                parts = [self._fault(alike[place : place + 1], error) for place in range(len(alike))]
            else:
                parts = by_halves(partial(self._changes, form), alike, self._fault, _REFUSALS)
            yield from chain.from_iterable(parts)

    def _form(self, run: EventRun) -> Form:
        metadata = run.metadata_of(0)
        kind = source_kind(run.read_method, metadata, self._declared)
        change = str(metadata.get("change_type") or "").upper()
        says_deleted = _deletion_mark(metadata)
        is_removal = change in _REMOVALS or says_deleted is True
        if not is_removal and change not in _WRITES:
            raise RecordUnreadable(f"The event reports a change that this version does not know: {change!r}")
        is_read = change in _READS or is_backfill(run.read_method)
        layout = self._layouts.of(kind, run.columns, metadata)
        if is_removal:
            return Form(kind, layout, ModType.DELETE, is_read, _contradiction(change, says_deleted))
        return Form(kind, layout, ModType.SNAPSHOT if is_read else _WRITES[change], is_read, None)

    def _changes(self, form: Form, events: EventRun) -> Sequence[ChangeRun | FaultyEvent]:
        _check_moments(events)
        event_ids = [uuid or digest_of(events, place) for place, uuid in enumerate(events.uuids)]
        column = form.layout.sequence_column
        if column is None:
            keys = ordering_keys(events, form, event_ids, self._rules)
        else:
            keys = sequence_keys(events, form, event_ids, events.column(column))
        run = OrderedRun(events, form, event_ids, keys)
        return list(removals_of(run)) if form.is_removal else [writes_of(run)]

    def _fault(self, run: EventRun, error: Exception) -> Sequence[FaultyEvent]:
        """Return the fault of the only event of a run."""
        metadata = run.metadata_of(0)
        try:
            kind = source_kind(run.read_method, metadata, self._declared)
            table: str | None = self._layouts.of(kind, run.columns, metadata).table
        except (RecordUnreadable, *MALFORMED):
            table = run.object_name or None
        fault = FaultyEvent(
            reason=str(error) if isinstance(error, RecordUnreadable) else problem_of(error),
            text=to_text(run),
            position=run.positions[0],
            table=table,
            event_id=event_identity(run.uuids[0] or digest_of(run, 0), run.object_name, metadata),
            metadata=metadata_texts(run)[0],
        )
        return [fault]


def results_of(result: ChangeRun | FaultyEvent) -> Iterable[SourceEvent | FaultyEvent]:
    """Return the changes of a run one by one, or a fault alone."""
    return result.events() if isinstance(result, ChangeRun) else (result,)


def _alike_runs(run: EventRun) -> Iterator[EventRun]:
    """Yield the events in runs that share all metadata which their form depends on."""
    varying = [layout_values(name, run.metadata[name]) for name in _FORM_MEMBERS if name in run.metadata]
    if "lsn" in run.metadata:
        varying.append(list(map(kind_of_lsn, run.metadata["lsn"])))
    varying = [values for values in varying if not _are_equal(values)]
    if not varying:
        yield run
        return
    places: dict[str, list[int]] = {}
    for place, values in enumerate(zip(*varying, strict=True)):
        places.setdefault(repr(values), []).append(place)
    yield from map(run.at, places.values())


def _are_equal(values: Sequence[Any]) -> bool:
    """Return whether values are certainly equal; 1, 1.0 and True are not, nor objects in another order."""
    first = values[0]
    if isinstance(first, list):
        is_comparable = all(isinstance(part, str) for part in first)
    else:
        is_comparable = isinstance(first, str) or {type(first)} == set(map(type, values)) - {dict}
    return is_comparable and values.count(first) == len(values)


def _check_moments(run: EventRun) -> None:
    """Reject an event of a time that the lake cannot store."""
    for micros in run.source_micros:
        if micros is not None and not is_moment(micros):
            raise RecordUnreadable(
                f"`source_timestamp` is outside the years 1 to 9999, in microseconds: {micros}"
            )


def _deletion_mark(metadata: Mapping[str, Any]) -> bool | None:
    """Return the deletion mark of an event; None without one.

    Raises:
        RecordUnreadable: it is neither true nor false, so the event may delete its row or write it.
    """
    mark = metadata.get("is_deleted")
    if mark is None or isinstance(mark, bool):
        return mark
    if not isinstance(mark, str) or mark.lower() not in _MARKS:
        raise RecordUnreadable(f"`is_deleted` is neither true nor false, but says: {mark!r}")
    return _MARKS[mark.lower()]


def _contradiction(change: str, says_deleted: bool | None) -> str | None:
    """Return a note for an event whose type and deletion mark disagree; it deletes its row."""
    if says_deleted is None or not change or (change in _REMOVALS) == says_deleted:
        return None
    return f"change_type is {change}, but is_deleted is {says_deleted}; taken for a delete"
