"""Ordering keys of Datastream's events: text that sorts in the order of the source's changes.

Every key has the shape `EPOCH CLASS ... HALF UUID`:

* EPOCH counts the declared times, `epochs`, at or before the event, for logs that start over.
* CLASS is 0 for backfilled rows and 1 for captured changes; 2 if both are compared by their clocks; 3 if the
  user's own sequence decides.
* Then the place in the source's log (positions.py), and the source timestamp.
* HALF is 0 for removals and 1 for writes, so at one place the write wins, in any order of arrival. With a
  sequence the removal wins, since it repeats the sequence of the row that it removes.
* UUID orders the remaining events. Its last digits count within a batch of the source, and a repeated event
  keeps it in any file.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cdc_platform.errors import RecordUnreadable
from cdc_platform.sources.datastream.events.event_runs import EventRun
from cdc_platform.sources.datastream.events.layouts import Form
from cdc_platform.sources.datastream.events.positions import (
    PositionRules,
    Positions,
    backfill_clocks,
    locate,
    moments_of,
)
from cdc_platform.sources.datastream.settings.policies import BackfillPolicy

_BACKFILL: Final = "0"
_CAPTURED: Final = "1"
_BY_CLOCK: Final = "2"
_BY_SEQUENCE: Final = "3"
_FIRST_EPOCH: Final = "0000"


@dataclass(frozen=True, slots=True)
class OrderRules:
    """Settings that the order depends on.

    Args:
        backfill_policy: whether a backfilled row overrides captured changes.
        epochs: ascending microseconds; changes at or after one follow all earlier changes.
        positions: settings that positions depend on.
    """

    backfill_policy: BackfillPolicy = BackfillPolicy.INITIAL
    epochs: tuple[int, ...] = ()
    positions: PositionRules = field(default_factory=PositionRules)


def ordering_keys(run: EventRun, form: Form, event_ids: Sequence[str], rules: OrderRules) -> list[str]:
    """Return the ordering keys of events, which are the same in any file.

    Raises:
        RecordUnreadable: an event does not state its place in the order.
    """
    half = "0" if form.is_removal else "1"
    places: Sequence[str]
    if rules.backfill_policy is BackfillPolicy.BY_SOURCE_TIMESTAMP:
        class_, epochs, places = _BY_CLOCK, _epochs(run, rules), _clock_orders(run, form, rules)
    elif not form.is_backfill:
        class_, epochs, places = (
            _CAPTURED,
            _epochs(run, rules),
            locate(form.kind, run, rules.positions, is_removal=form.is_removal).places,
        )
    else:
        # A repeated backfill counts only on request.
        counts = rules.backfill_policy is BackfillPolicy.FORCE
        epochs = _epochs(run, rules) if counts else [_FIRST_EPOCH] * len(run)
        class_, places = _BACKFILL, moments_of(run)
    parts = zip(epochs, places, event_ids, strict=True)
    return [f"{epoch} {class_} {place} {half} {event_id}" for epoch, place, event_id in parts]


def sequence_keys(
    run: EventRun, form: Form, event_ids: Sequence[str], sequences: Sequence[object]
) -> list[str]:
    """Return the ordering keys of events with user-supplied sequences, in BigQuery's grammar.

    Raises:
        RecordUnreadable: a sequence is missing or invalid.
    """
    if None in sequences:
        raise RecordUnreadable(
            "The event has no value in the column that the setting `sequence_columns` names, so it can be "
            "neither newer nor older than others"
        )
    half = "1" if form.is_removal else "0"
    parts = zip(map(sequence_order, sequences), moments_of(run), event_ids, strict=True)
    return [f"{_FIRST_EPOCH} {_BY_SEQUENCE} {order} {half} {moment} {uuid}" for order, moment, uuid in parts]


def _clock_orders(run: EventRun, form: Form, rules: OrderRules) -> list[str]:
    """Return clock, class and place: at the time of a backfill's read, captured changes win."""
    if form.is_backfill:
        class_, positions = _BACKFILL, Positions(backfill_clocks(form.kind, run), moments_of(run))
    else:
        class_, positions = _CAPTURED, locate(form.kind, run, rules.positions, is_removal=form.is_removal)
    return [f"{clock} {class_} {place}" for clock, place in zip(*positions, strict=True)]


def _epochs(run: EventRun, rules: OrderRules) -> list[str]:
    if not rules.epochs:
        return [_FIRST_EPOCH] * len(run)
    if None in run.source_micros:
        raise RecordUnreadable("The event has no `source_timestamp`, by which its epoch is known")
    return [f"{bisect_right(rules.epochs, micros):04d}" for micros in run.source_micros if micros is not None]


_SECTIONS: Final = re.compile(r"[0-9A-Fa-f]{1,16}(?:/[0-9A-Fa-f]{1,16}){0,3}", re.ASCII)


def sequence_order(text: object) -> str:
    """Return a sequence in a form whose text order is BigQuery's order.

    A sequence has one to four sections of one to sixteen hex digits, separated by `/`. Sections compare as
    unsigned numbers from left to right, and a longer sequence follows its own prefixes. In an ordering key,
    the character after the result must sort before `/`.

    Raises:
        RecordUnreadable: the text has another form.
    """
    if not isinstance(text, str) or _SECTIONS.fullmatch(text) is None:
        raise RecordUnreadable(
            "A sequence has one to four sections of one to sixteen hex digits, separated by `/`, "
            f"and not: {text!r}"
        )
    return "/".join(f"{int(section, 16):016x}" for section in text.split("/"))
