"""Opening hours of the bank: the history happens in them, and stands still in between.

Time is divided into blocks of a second from the origin. Without a state file the bank is always open. With
one it is open while a simulator runs, so that the history of last week continues today without the days in
between. The file states in advance until when the bank stays open: even after a kill, the next simulator
generates the same transactions up to that time.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from cdc_platform.errors import SettingError
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.private_files import write_whole
from cdc_platform.simulator.wire.simulator_settings import SimulatorSettings

FORMAT_VERSION: Final = 1
BLOCK_MICROS: Final = 1_000_000
LEASE_BLOCKS: Final = 5
"""Number of blocks for which the file guarantees in advance that the bank is open."""

FREE_SETTINGS: Final = frozenset(
    {"faults", "fault_probability", "stall_s", "chunk_bytes", "root_parents", "record_sequences"}
)
"""Settings that change the delivery of the history, but not its content."""
PACE_SETTINGS: Final = ("rate", "partitions", "partition_life_s")
"""Settings with separate values for each opening."""


@dataclass(frozen=True)
class Interval:
    """Blocks `[first, end)` in which the bank is open; `end` is None if it never closes."""

    first: int
    end: int | None
    rate: float
    partitions: int
    partition_life_s: float


class OpeningHours:
    """The openings so far, stored in a file if there is one."""

    def __init__(self, origin_micros: int, openings: Sequence[Interval], file: "StateFile | None") -> None:
        self.origin_micros = origin_micros
        self.openings = list(openings)
        self._file = file

    @classmethod
    def always(cls, settings: SimulatorSettings, origin_micros: int) -> "OpeningHours":
        """Return hours that never end."""
        return cls(origin_micros, [_opening(settings, 0, None)], None)

    @classmethod
    def kept_in(cls, path: Path, settings: SimulatorSettings, now_micros: int) -> "OpeningHours":
        """Return the hours of a file, with a new opening from now on; a missing file is created.

        Raises:
            SettingError: the file has other settings or another beginning, or another format.
        """
        file = StateFile(path, settings)
        history_blocks = math.ceil(settings.history_s)
        began_micros = settings.origin_micros
        if began_micros is None:
            began_micros = now_micros - int(settings.history_s * BLOCK_MICROS)
        origin_micros, openings = file.read() or (began_micros, [])
        current = (now_micros - origin_micros) // BLOCK_MICROS
        first = max([current, *(opening.end or 0 for opening in openings)])
        # With a new file, the bank has been open for the requested length of the history.
        opening_micros = _opening(
            settings, first if openings else max(0, first - history_blocks), first + LEASE_BLOCKS
        )
        hours = cls(origin_micros, [*openings, opening_micros], file)
        file.write(origin_micros, hours.openings)
        return hours

    def block_of(self, micros: int) -> int:
        """Return the number of the block of a time."""
        return (micros - self.origin_micros) // BLOCK_MICROS

    def start_micros(self, block: int) -> int:
        """Return when a block starts."""
        return self.origin_micros + block * BLOCK_MICROS

    def blocks(self, first: int, last: int) -> Iterator[tuple[int, Interval]]:
        """Yield the open blocks from one to another, both inclusive."""
        for opening in self.openings:
            end = last + 1 if opening.end is None else min(opening.end, last + 1)
            for block in range(max(first, opening.first), end):
                yield block, opening

    def keep_open(self, now_micros: int) -> None:
        """Keep the bank open for some more blocks."""
        current, last = self.block_of(now_micros), self.openings[-1]
        if self._file is None or last.end is None or current + 1 < last.end:
            return
        # A simulator that slept too long must not open hours that readers saw as closed.
        if current >= last.end:
            self.openings.append(replace(last, first=current + 1, end=current + 1 + LEASE_BLOCKS))
        else:
            self.openings[-1] = replace(last, end=current + 1 + LEASE_BLOCKS)
        self._file.write(self.origin_micros, self.openings)


@dataclass(frozen=True)
class StateFile:
    """Origin, settings and openings of a history as a file."""

    path: Path
    settings: SimulatorSettings

    def read(self) -> tuple[int, list[Interval]] | None:
        """Return origin and openings; None if there is no file yet."""
        if not self.path.exists():
            return None
        try:
            state: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
            openings = [Interval(**fields) for fields in state["openings"]]
            version, origin, settings = state["format_version"], state["origin_micros"], state["settings"]
        except (ValueError, KeyError, TypeError) as error:
            raise SettingError("state", f"is not a state file of the simulator: {self.path}") from error
        if version != FORMAT_VERSION:
            raise SettingError("state", f"has format {version}, which this version cannot read: {self.path}")
        for name, value in self._lasting().items():
            if settings.get(name) != value:
                raise SettingError(
                    name,
                    f"is {value!r}, but the history in {self.path} was created with {settings.get(name)!r}; "
                    "use the same value, or another file",
                )
        self._check_begin(int(origin))
        return int(origin), openings

    def _check_begin(self, origin_micros: int) -> None:
        began = f"the history in {self.path} began at {to_rfc3339(origin_micros)}"
        advice = f"{began}; leave it out, or use another file"
        if self.settings.origin_micros not in (None, origin_micros):
            raise SettingError(
                "origin_micros", f"(--origin) is {to_rfc3339(self.settings.origin_micros or 0)}, but {advice}"
            )
        if self.settings.history_s:
            raise SettingError("history_s", f"(--age) is {self.settings.history_s:g}, but {advice}")

    def write(self, origin_micros: int, openings: Sequence[Interval]) -> None:
        """Replace the file."""
        document = {
            "format_version": FORMAT_VERSION,
            "origin_micros": origin_micros,
            "settings": self._lasting(),
            "openings": [asdict(opening) for opening in openings],
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, json.dumps(document, indent=1))

    def _lasting(self) -> dict[str, Any]:
        free = FREE_SETTINGS | {*PACE_SETTINGS, "origin_micros", "history_s"}
        fields = {name: value for name, value in asdict(self.settings).items() if name not in free}
        lasting: dict[str, Any] = json.loads(json.dumps(fields))
        return lasting


def _opening(settings: SimulatorSettings, first: int, end: int | None) -> Interval:
    return Interval(first, end, settings.rate, settings.partitions, settings.partition_life_s)
