"""Files of a folder on this machine: before each is made, renamed or removed, a process may die."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from cdc_platform_tests.support.crash_points.files import as_file_error
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
        with as_file_error():
            POINTS.before(_KINDS[event], str(file))


def _is_written(_file: Any, mode: str | None, flags: int) -> bool:
    return bool(flags & (os.O_WRONLY | os.O_RDWR)) if mode is None else not mode.startswith("r")


_hooked: list[bool] = []


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Make each effect on files below a folder a crash point; Python's hooks stay for ever."""
    if not _hooked:
        sys.addaudithook(_watch)
        _hooked.append(True)
    _watched.append(folder)
    try:
        yield
    finally:
        _watched.clear()


@contextmanager
def dying_in(folder: Path, death: Death | None) -> Iterator[None]:
    """Number the effects on files below a folder, and die at one of them."""
    with POINTS.counted(death), watched(folder):
        yield
