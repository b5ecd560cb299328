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
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from cdc_platform.errors import RecordUnreadable
from cdc_platform.sources.datastream.events.envelope import Envelope
from cdc_platform.sources.datastream.events.positions import (
    Position,
    PositionRules,
    backfill_clock,
    locate,
    moment_of,
)
from cdc_platform.sources.datastream.settings.kinds import SourceKind
from cdc_platform.sources.datastream.settings.policies import BackfillPolicy

_BACKFILL: Final = "0"
_CAPTURED: Final = "1"
_BY_CLOCK: Final = "2"
_BY_SEQUENCE: Final = "3"
_FIRST_EPOCH: Final = "0000"
# Looking up a member of an enumeration takes as long as a call.
_BY_SOURCE_TIMESTAMP: Final = BackfillPolicy.BY_SOURCE_TIMESTAMP


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


class OrderingFacts(Struct, frozen=True):
    """Facts about an event beyond its envelope that its ordering key needs."""

    kind: SourceKind
    is_backfill: bool
    is_removal: bool
    event_id: str


def ordering_key(envelope: Envelope, facts: OrderingFacts, rules: OrderRules) -> str:
    """Return the ordering key of an event, which is the same in any file.

    Raises:
        RecordUnreadable: the event does not state its place in the order.
    """
    half = f"{'0' if facts.is_removal else '1'} {facts.event_id}"
    if rules.backfill_policy is _BY_SOURCE_TIMESTAMP:
        return f"{_epoch(envelope, rules)} {_BY_CLOCK} {_clock_order(envelope, facts, rules)} {half}"
    if not facts.is_backfill:
        return f"{_epoch(envelope, rules)} {_CAPTURED} {_position_of(envelope, facts, rules).place} {half}"
    # A repeated backfill counts only on request.
    counts = rules.backfill_policy is BackfillPolicy.FORCE
    epoch = _epoch(envelope, rules) if counts else _FIRST_EPOCH
    return f"{epoch} {_BACKFILL} {moment_of(envelope)} {half}"


def sequence_key(envelope: Envelope, facts: OrderingFacts, sequence: object) -> str:
    """Return the ordering key of an event with a user-supplied sequence, in BigQuery's grammar.

    Raises:
        RecordUnreadable: the sequence is missing or invalid.
    """
    if sequence is None:
        raise RecordUnreadable(
            "The event has no value in the column that the setting `sequence_columns` names, so it can be "
            "neither newer nor older than others"
        )
    half = f"{'1' if facts.is_removal else '0'} {moment_of(envelope)} {facts.event_id}"
    return f"{_FIRST_EPOCH} {_BY_SEQUENCE} {sequence_order(sequence)} {half}"


def _clock_order(envelope: Envelope, facts: OrderingFacts, rules: OrderRules) -> str:
    """Return clock, class and place: at the time of a backfill's read, captured changes win."""
    if facts.is_backfill:
        return f"{backfill_clock(facts.kind, envelope)} {_BACKFILL} {moment_of(envelope)}"
    position = _position_of(envelope, facts, rules)
    return f"{position.clock} {_CAPTURED} {position.place}"


def _position_of(envelope: Envelope, facts: OrderingFacts, rules: OrderRules) -> Position:
    return locate(facts.kind, envelope, rules.positions, is_removal=facts.is_removal)


def _epoch(envelope: Envelope, rules: OrderRules) -> str:
    if not rules.epochs:
        return _FIRST_EPOCH
    micros = envelope.source_timestamp_micros
    if micros is None:
        raise RecordUnreadable("The event has no `source_timestamp`, by which its epoch is known")
    return f"{bisect_right(rules.epochs, micros):04d}"


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
