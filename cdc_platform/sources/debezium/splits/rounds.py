"""Decoding of splits beside each other, repeated for those that depend on what another one shows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from cdc_platform.sources.debezium.rows.joined_states import joined_state
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.splits.outcome import FreeRow, SplitOutcome, combined_outcome

Split = TypeVar("Split")
Rows = TypeVar("Rows")
Rows_co = TypeVar("Rows_co", covariant=True)


class DecodedSplits(Protocol[Rows_co]):
    """Splits that tasks have decoded, and keep the rows of."""

    @property
    def outcomes(self) -> Sequence[SplitOutcome]:
        """Outcome of each split, in their order."""
        ...

    def blocks(self, numbers: Sequence[int] | None = None) -> Rows_co:
        """Return the blocks of the splits of some numbers, or of all."""
        ...

    def free_rows(self, numbers: Sequence[int] | None = None) -> Iterator[FreeRow]:
        """Yield the places of the rows of these splits, or of all, that have no transaction."""
        ...


@dataclass(frozen=True)
class _Entry(Generic[Split, Rows]):
    """A split that counts: where its rows are, and what is known behind it."""

    split: Split
    decoded: DecodedSplits[Rows]
    number: int
    outcome: SplitOutcome
    state: DecoderState


class SplitRounds(Generic[Split, Rows]):
    """Splits of one reading, in their order.

    All splits of a round begin with what is known before its first one. Nearly always none of them uses what
    another one shows; a split that does is decoded again, with all behind it, in another round. Splits that
    turn out to share a transaction become one.

    Args:
        decode: decodes splits beside each other, each from the same state, as text.
        merge: returns consecutive splits as one.
        state: what earlier readings have shown, as text; None at the beginning of a stream.
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

    @property
    def has_failed(self) -> bool:
        """Whether the last split could not be read to its end, so that none may follow it."""
        return bool(self._entries) and bool(self._entries[-1].outcome.failed)

    def take(self, splits: Sequence[Split]) -> None:
        """Decode the splits that follow next; after one that fails the others are left out."""
        pending = list(splits)
        while pending and not self.has_failed:
            text = self._entries[-1].state.to_json() if self._entries else self._state
            pending = self._take(pending, self._decode(pending, text), DecoderState.from_json(text))

    def _take(
        self, splits: Sequence[Split], decoded: DecodedSplits[Rows], start: DecoderState
    ) -> list[Split]:
        """Take the splits of a round as far as they count, and return those of the next round."""
        for number, (split, outcome) in enumerate(zip(splits, decoded.outcomes, strict=True)):
            shared = self._first_sharing(outcome)
            if shared is not None:
                merged = self._merge([*(entry.split for entry in self._entries[shared:]), split])
                del self._entries[shared:]
                return [merged, *splits[number + 1 :]]
            before = self._entries[-1].state if self._entries else start
            state = joined_state(before, start, outcome.end) if number else outcome.end
            if state is None:
                return list(splits[number:])
            outcome.come_behind(sum(entry.outcome.taken for entry in self._entries))
            self._entries.append(_Entry(split, decoded, number, outcome, state))
            if outcome.failed:
                break
        return []

    def _first_sharing(self, outcome: SplitOutcome) -> int | None:
        """Return the place of the first split that has a transaction of another one."""
        places = (
            place
            for place, entry in enumerate(self._entries)
            if not outcome.names.isdisjoint(entry.outcome.names)
        )
        return next(places, None)

    def outcome(self) -> SplitOutcome:
        """Return the outcome of all splits."""
        combined = combined_outcome([entry.outcome for entry in self._entries])
        return replace(combined, state=self._entries[-1].state.to_json())

    def blocks(self) -> Iterator[Rows]:
        """Yield the blocks of the splits, of each round in which some count."""
        return (decoded.blocks(numbers) for decoded, numbers in self._by_round())

    def free_rows(self) -> Iterator[FreeRow]:
        """Yield the places of the rows that have no transaction."""
        return (row for decoded, numbers in self._by_round() for row in decoded.free_rows(numbers))

    def _by_round(self) -> Iterable[tuple[DecodedSplits[Rows], list[int]]]:
        rounds: dict[int, tuple[DecodedSplits[Rows], list[int]]] = {}
        for entry in self._entries:
            rounds.setdefault(id(entry.decoded), (entry.decoded, []))[1].append(entry.number)
        return rounds.values()


def joined_outcome(outcomes: Sequence[SplitOutcome], state: str | None) -> SplitOutcome | None:
    """Return the outcome of splits among which there is no order; None where there are no independent ones.

    Args:
        outcomes: of splits that were decoded from one state.
        state: that state, as text.
    """
    start = known = DecoderState.from_json(state)
    names: set[str] = set()
    for number, outcome in enumerate(outcomes):
        end = outcome.end
        joined = joined_state(known, start, end) if number else end
        # A flattened stream's tombstones follow their deletes.
        is_flattened = len(outcomes) > 1 and bool(end.use.told_topics)
        if joined is None or is_flattened or not names.isdisjoint(outcome.names):
            return None
        known = joined
        names |= outcome.names
    return replace(combined_outcome(outcomes), state=known.to_json()) if outcomes else None
