"""Parallel decoding of splits, repeated for splits that depend on another one."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, permutations
from typing import Final, Generic, TypeVar

import numpy as np

from cdc_platform.sources.debezium.rows.joined_states import joined_state
from cdc_platform.sources.debezium.rows.state import DecoderState, FlatEvent
from cdc_platform.sources.debezium.splits.decoded_splits import DecodedSplits
from cdc_platform.sources.debezium.splits.outcome import FreeRow, SplitOutcome, combined_outcome

MAX_ROUNDS: Final = 4
"""Maximum number of rounds of parallel decoding; each decodes again what depends on the previous round."""
Split = TypeVar("Split")
Rows = TypeVar("Rows")


@dataclass(frozen=True)
class _Entry(Generic[Split, Rows]):
    """A valid split: the place of its rows, and the decoder's state after it."""

    split: Split
    decoded: DecodedSplits[Rows]
    number: int
    outcome: SplitOutcome
    state: DecoderState


class SplitRounds(Generic[Split, Rows]):
    """Splits of one read, in order.

    All splits of a round begin with the decoder's state before the first one. Usually no split needs state
    from another one. A split that does is decoded again in another round, together with all later splits.
    Splits that share a transaction are merged. After a few rounds, the rest is decoded as one split.

    Args:
        decode: decodes splits in parallel, each from the same state, as text.
        merge: returns consecutive splits as one.
        state: decoder state after earlier reads, as text; None at the beginning of a stream.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[Split], str | None], DecodedSplits[Rows]],
        merge: Callable[[Sequence[Split]], Split],
        state: str | None,
    ) -> None:
        self._decode = decode
        self._merge = merge
        self._state = state
        self._entries: list[_Entry[Split, Rows]] = []

    def take(self, splits: Sequence[Split]) -> None:
        """Decode the next splits."""
        pending = list(splits)
        for rounds in count(1):
            if not pending:
                return
            if rounds > MAX_ROUNDS:
                pending = [self._merge(pending)]
            text = self._entries[-1].state.to_json() if self._entries else self._state
            decoded_splits = self._decode(pending, text)
            pending = self._take(pending, decoded_splits, DecoderState.from_json(text))

    def _take(
        self, splits: Sequence[Split], decoded_splits: DecodedSplits[Rows], start: DecoderState
    ) -> list[Split]:
        """Add the valid splits of a round, and return the splits of the next round."""
        outcomes = decoded_splits.outcomes
        split_pairs = _sharing([*(entry.outcome for entry in self._entries), *outcomes])
        if split_pairs is not None:
            first, last = split_pairs
            all_splits = [*(entry.split for entry in self._entries), *splits]
            del self._entries[first:]
            splits_before = all_splits[len(self._entries) : first]
            return [*splits_before, self._merge(all_splits[first : last + 1]), *all_splits[last + 1 :]]
        for number, (split, outcome) in enumerate(zip(splits, outcomes, strict=True)):
            before = self._entries[-1].state if self._entries else start
            state = joined_state(before, start, outcome.end) if number else outcome.end
            if state is None:
                return list(splits[number:])
            shifted_outcome = outcome.after(sum(entry.outcome.messages for entry in self._entries))
            self._entries.append(_Entry(split, decoded_splits, number, shifted_outcome, state))
        return []

    def outcome(self) -> SplitOutcome:
        """Return the outcome of all splits."""
        combination = combined_outcome([entry.outcome for entry in self._entries])
        return replace(combination, state=self._entries[-1].state.to_json())

    def blocks(self) -> Iterator[Rows]:
        """Yield the blocks of the splits, for each round with valid splits."""
        return (round_splits.blocks(numbers) for round_splits, numbers in self._by_round())

    def free_rows(self) -> Iterator[FreeRow]:
        """Yield the places of rows without a transaction."""
        return (row for round_splits, numbers in self._by_round() for row in round_splits.free_rows(numbers))

    def _by_round(self) -> Iterable[tuple[DecodedSplits[Rows], list[int]]]:
        rounds: dict[int, tuple[DecodedSplits[Rows], list[int]]] = {}
        for entry in self._entries:
            rounds.setdefault(id(entry.decoded), (entry.decoded, []))[1].append(entry.number)
        return rounds.values()


def joined_outcome(outcomes: Sequence[SplitOutcome], state: str | None) -> SplitOutcome | None:
    """Return the outcome of splits without an order; None if they are not independent of each other.

    Args:
        outcomes: outcomes of splits that were decoded from the same state.
        state: that state, as text.
    """
    start, ends = DecoderState.from_json(state), [outcome.end for outcome in outcomes]
    # Changes follow the snapshot that a stream begins with.
    ends.sort(key=lambda end: not end.use.snapshot_servers)
    if not outcomes or _sharing(outcomes) is not None:
        return None
    if _has_two_identities(ends, start) or _has_doubtful_tombstones(ends, start):
        return None
    # Any of them may have come before any other.
    pairs = permutations(ends, 2)
    if any(joined_state(before, start, end, is_ordered=False) is None for before, end in pairs):
        return None
    joint = ends[0]
    for end in ends[1:]:
        end_state = joined_state(joint, start, end, is_ordered=False)
        if end_state is None:
            return None
        joint = end_state
    joint.flat_events |= _last_flat_events(ends)
    return replace(combined_outcome(outcomes), state=joint.to_json())


def shown_state(outcomes: Sequence[SplitOutcome], state: str | None) -> str | None:
    """Return the state with which to decode splits without an order again; None if they were decoded with it.

    It has the tables of which events showed REPLICA IDENTITY FULL, and none another one: events before the
    first one that showed it came under FULL, too. A table with events that would be wrong if they came under
    another identity is left out, and splits that depend on it are not independent.

    Args:
        outcomes: outcomes of splits that were decoded from the same state.
        state: that state, as text.
    """
    start, uses = DecoderState.from_json(state), [outcome.use for outcome in outcomes]
    doubtful = _union(use.shown_other | use.doubtful for use in uses)
    full_tables = _union(use.shown_full for use in uses) - doubtful - start.full - start.unusable
    if full_tables.isdisjoint(_union(use.identities for use in uses)):
        return None
    return replace(start, full=start.full | full_tables).to_json()


def _has_two_identities(ends: Sequence[DecoderState], start: DecoderState) -> bool:
    """Return whether a table's replica identity depends on the order of splits.

    A table under FULL that seems to be under an index for a while is accepted if all splits end with FULL.
    """
    if len(ends) == 1:
        return False
    full_tables = _union(end.full & end.use.shown for end in ends)
    other_tables = _union(end.use.shown - end.full for end in ends)
    shown_full = _union(end.use.shown_full for end in ends)
    shown_other = _union(end.use.shown_other for end in ends)
    changed_tables = (shown_full - start.full) | (other_tables & start.full)
    uses = Counter(name for end in ends for name in end.use.names)
    is_refused = any(uses[name] > 1 for end in ends for name in end.use.changed_unusable)
    return is_refused or bool(full_tables & other_tables or changed_tables & shown_full & shown_other)


def _has_doubtful_tombstones(ends: Sequence[DecoderState], start: DecoderState) -> bool:
    """Return whether the event before a tombstone of a flattened topic may be in another split."""
    flat_partitions = _union(end.use.flat_partitions for end in ends).union(start.flat_events)
    tombstones = _union(end.use.distant_tombstones for end in ends)
    return len(ends) > 1 and not flat_partitions.isdisjoint(tombstones)


def _last_flat_events(ends: Sequence[DecoderState]) -> dict[str, FlatEvent]:
    """Return the last event of each partition with flattened events in any split."""
    places = ((place, end) for end in ends for place in end.use.flat_partitions & end.flat_events.keys())
    return dict(sorted((place, end.flat_events[place]) for place, end in places))


def _union(names: Iterable[set[str]]) -> set[str]:
    return set[str]().union(*names)


def _sharing(outcomes: Sequence[SplitOutcome]) -> tuple[int, int] | None:
    """Return the places of the first and the last split that share transactions.

    Equal digests of different names cost no more than a merge of their splits. Within one split they are
    nothing shared: it would be merged with itself for ever.
    """
    names = np.concatenate([np.frombuffer(outcome.names, np.uint64) for outcome in outcomes])
    # Numbers alone are sorted fifteen times as fast as with their places, and usually all are different.
    in_order = np.sort(names)
    if (in_order[1:] != in_order[:-1]).all():
        return None
    order = np.argsort(names, kind="stable")
    places = np.repeat(np.arange(len(outcomes)), [len(outcome.names) for outcome in outcomes])[order]
    # Equal names are in the order of their splits.
    pairs = np.flatnonzero((names[order][1:] == names[order][:-1]) & (places[1:] != places[:-1]))
    return (int(places[pairs].min()), int(places[pairs + 1].max())) if len(pairs) else None
