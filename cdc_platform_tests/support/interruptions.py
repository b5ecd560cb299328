"""Rival runs that interrupt a step."""

from collections.abc import Callable
from typing import Any

import pytest


def interrupt_once(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, rival: Callable[[], object]
) -> None:
    """Let a rival run to its end just before the first call of a function."""
    original: Callable[..., Any] = getattr(module, name)

    def interrupted(*args: object, **kwargs: object) -> object:
        monkeypatch.setattr(module, name, original)
        rival()
        return original(*args, **kwargs)

    monkeypatch.setattr(module, name, interrupted)
