"""Durable effects as numbered points: what a process does to a lake, and where it dies."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar


class ProcessDeath(BaseException):
    """The process ended here: nothing in the product catches it, and no effect follows it."""


class EffectKind(Enum):
    """Kind of a durable effect."""

    WRITE = "write"
    """A file appears: it can be written in part."""
    DELETE = "delete"
    """A file disappears."""
    COMMIT = "commit"
    """A row of the catalog names another metadata file: a commit, a moved branch, a new table."""
    DROP = "drop"
    """A row of the catalog disappears."""
    LOOK = "look"
    """No effect, but a run can pause before it: a row of the catalog is read."""


class Moment(Enum):
    """When a process dies at an effect."""

    BEFORE = "before"
    """The effect has not happened."""
    WITHIN = "within"
    """Half of the file is there."""
    AFTER = "after"
    """The effect has happened, unconfirmed."""


class Failure(Enum):
    """An error by which an effect fails while its process lives on; the text is what the system says."""

    FULL = "No space left on device"
    """From this effect on, every written file is truncated, and the catalog refuses commits."""
    READ_ONLY = "Read-only file system"
    """From an effect on, nothing can be written or deleted."""
    BROKEN = "Input/output error"
    """One effect fails."""
    REFUSED = "refused as outdated"
    """One commit is refused, although there is no other."""

    def goes_on(self, kind: EffectKind) -> bool:
        """Return whether all effects of a kind fail after the first one."""
        return self in {Failure.FULL, Failure.READ_ONLY} and self.meets(kind)

    def meets(self, kind: EffectKind) -> bool:
        """Return whether effects of a kind can fail by it."""
        if self is Failure.REFUSED:
            return kind is EffectKind.COMMIT
        return self is not Failure.FULL or kind is not EffectKind.DELETE


class EffectFailure(Exception):
    """An effect fails; whose it is raises what its library would raise."""

    def __init__(self, failure: Failure, target: str) -> None:
        self.failure, self.target = failure, target
        super().__init__(f"{failure.value}: {target}")


@dataclass(frozen=True)
class Death:
    """One death, or one failure: the number of an effect, counted from 1, and the moment at it."""

    number: int
    moment: Moment


@dataclass(frozen=True)
class Pause:
    """A pause of the run after the first suitable effect or before such a look, and what others do meanwhile.

    Their effects are not counted, nor are those of the run's other threads, which the pause does not stop.
    """

    is_at: Callable[["Effect"], bool]
    meanwhile: Callable[[], object]


@dataclass(frozen=True)
class Effect:
    """An effect that a run had, or was about to have."""

    number: int
    kind: EffectKind
    target: str
    """Path of the file, or name of the table in the catalog."""
    moments: tuple[Moment, ...]
    """The moments at which a process can die at it."""


UNCOUNTED: Final = 0
"""Number of an effect of another process than the run."""
ResultT = TypeVar("ResultT")
Witness = Callable[[Death, Effect], object]
"""Receives a moment, and the effect that it belongs to."""


@dataclass
class CrashPoints:
    """Numbers the effects of a run in any library and thread, and ends the run at one of them.

    Once a run has died, every further effect is refused: what product code does in a `finally` block or an
    `except` clause reaches the lake no more than after `kill -9`.
    """

    effects: list[Effect] = field(default_factory=list)
    death: Death | None = None
    failure: Failure | None = None
    """Error of an effect at which the run would otherwise die."""
    has_failed: bool = False
    is_dead: bool = False
    witness: Witness | None = None
    """Is called at each moment at which the run could die; no other effect happens meanwhile."""
    pause: Pause | None = None
    is_paused: bool = False
    counts_looks: bool = False
    """Whether looks at the catalog are numbered among the effects."""
    _lock: Lock = field(default_factory=Lock)

    def before(self, kind: EffectKind, target: str) -> int:
        """Number an effect that is about to happen, and return its number.

        Raises:
            ProcessDeath: the run ends before it.
            EffectFailure: it fails.
        """
        with self._lock:
            if self.is_paused:
                return UNCOUNTED
            self._refuse()
            moments = tuple(Moment) if kind is EffectKind.WRITE else (Moment.BEFORE, Moment.AFTER)
            number = self._add(kind, target, moments)
            if self.has_failed and self.failure is not None and self.failure.goes_on(kind):
                raise EffectFailure(self.failure, target)
            self._die_at(Death(number, Moment.BEFORE))
            return number

    def is_torn(self, number: int) -> bool:
        """Return whether the run ends, or fails, in the middle of an effect; the caller leaves half of it."""
        if number == UNCOUNTED:
            return False
        with self._lock:
            place = Death(number, Moment.WITHIN)
            self._witness(place)
            if self.is_dead or not self._ends_at(place):
                return False
            self.death = place
            self._end(number)
            return True

    def after(self, number: int) -> None:
        """Note that an effect has happened.

        Raises:
            ProcessDeath: the run ends after it, or has ended.
            EffectFailure: half of it has happened.
        """
        if number == UNCOUNTED:
            return
        with self._lock:
            self._refuse()
            if self.has_failed and self.death == Death(number, Moment.WITHIN):
                raise self._end(number)
            self._die_at(Death(number, Moment.AFTER))
            pause = self.pause
            if pause is None or not pause.is_at(self.effects[number - 1]):
                return
            self.is_paused, self.pause = True, None
        try:
            pause.meanwhile()
        finally:
            self.is_paused = False

    def have(self, kind: EffectKind, target: str, act: Callable[[], ResultT]) -> ResultT:
        """Have an effect that happens at once or not at all."""
        number = self.before(kind, target)
        result = act()
        self.after(number)
        return result

    @contextmanager
    def counted(
        self,
        death: Death | None = None,
        witness: Witness | None = None,
        failure: Failure | None = None,
        pause: Pause | None = None,
        has_looks: bool = False,
    ) -> Iterator[None]:
        """Number the effects of the context from one; the run dies, fails or pauses at the requested one."""
        self.effects, self.death, self.is_dead, self.witness = [], death, False, witness
        self.failure, self.has_failed, self.pause = failure, False, pause
        self.counts_looks = has_looks
        try:
            yield
        finally:
            self.death, self.is_dead, self.witness, self.pause = None, False, None, None
            self.failure, self.has_failed, self.counts_looks = None, False, False

    def mend(self) -> None:
        """Let no further effect of the context fail."""
        self.death, self.failure, self.has_failed = None, None, False

    def _add(self, kind: EffectKind, target: str, moments: tuple[Moment, ...]) -> int:
        number = len(self.effects) + 1
        self.effects.append(Effect(number, kind, target, moments))
        return number

    def _refuse(self) -> None:
        if self.is_dead:
            raise ProcessDeath

    def _witness(self, death: Death) -> None:
        if self.witness is not None:
            self.witness(death, self.effects[death.number - 1])

    def _die_at(self, place: Death) -> None:
        self._witness(place)
        if self._ends_at(place):
            raise self._end(place.number)

    def _ends_at(self, place: Death) -> bool:
        """Return whether the run dies at a place, or fails at it, as the first that can fail from there on.

        The threads of this run may have had their effects in another order than those of the one before.
        """
        if self.failure is None or self.death is None:
            return self.death == place
        is_due = not self.has_failed and place.number >= self.death.number
        kind = self.effects[place.number - 1].kind
        return is_due and place.moment is self.death.moment and self.failure.meets(kind)

    def _end(self, number: int) -> BaseException:
        """Note that the run dies or fails at an effect, and return what it raises."""
        if self.failure is None:
            self.is_dead = True
            return ProcessDeath()
        self.has_failed = True
        return EffectFailure(self.failure, self.effects[number - 1].target)


POINTS: Final = CrashPoints()
"""The points of this process: pyiceberg makes its file access by the name of a class, and so finds them."""


def path_of(location: str) -> Path:
    """Return the path of a file that Java or Python names."""
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def describe(effect: Effect, lake: Path) -> str:
    """Return an effect in words, without what differs from run to run."""
    place = str(path_of(effect.target)) if "/" in effect.target else effect.target
    place = place.removeprefix(f"{lake}/")
    table, _, file = place.partition("/metadata/")
    name = f"{table}: {_file_kind(file)}" if file else place.partition("/data/")[0]
    return f"{effect.kind.value} {name}"


def _file_kind(file: str) -> str:
    if file.endswith(".json"):
        return "metadata file"
    return "manifest list" if file.startswith("snap-") else "manifest"
