"""Files of a folder on this machine: before each is made, renamed or removed, a process may die."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from cdc_platform_tests.support.crash_points.points import POINTS, Death, EffectKind

_KINDS: Final = {
    "open": EffectKind.WRITE,
    "os.rename": EffectKind.WRITE,
    "os.remove": EffectKind.DELETE,
    "os.truncate": EffectKind.WRITE,
}
"""Events that Python reports before it has such an effect."""
_watched: list[Path] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watched or event not in _KINDS or isinstance(arguments[0], int):
        return
    file = Path(arguments[0])
    if _watched[0] in file.parents and (event != "open" or _is_written(*arguments)):
        POINTS.before(_KINDS[event], str(file))


def _is_written(_file: Any, mode: str | None, flags: int) -> bool:
    return bool(flags & (os.O_WRONLY | os.O_RDWR)) if mode is None else not mode.startswith("r")


_hooked: list[bool] = []


@contextmanager
def dying_in(folder: Path, death: Death | None) -> Iterator[None]:
    """Number the effects on files below a folder, and die at one of them; Python's hooks stay for ever."""
    if not _hooked:
        sys.addaudithook(_watch)
        _hooked.append(True)
    with POINTS.counted(death):
        _watched.append(folder)
        try:
            yield
        finally:
            _watched.clear()
