"""Properties that are computed once for each object, without locks between objects."""

import threading
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

Value = TypeVar("Value")


class cached_value(Generic[Value]):  # noqa: N801  named as `cached_property` is, whose place it takes
    """A cached property whose computation may wait for a catalog or a source.

    `functools.cached_property` has one lock for all objects until Python 3.12: a lake that does not answer
    would stop all other pipelines of the process.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> Value | Self:
        """Return the value of an object; its `__dict__` has it from then on, until somebody takes it out."""
        if instance is None:
            return self
        values, lock_name = instance.__dict__, f"{self._name} is computed"
        lock = values.setdefault(lock_name, threading.RLock())
        with lock:
            try:
                value: Value = values[self._name] if self._name in values else self._compute(instance)
                values[self._name] = value
            finally:
                # Locks cannot be pickled; threads that wait for this one refer to it themselves.
                if values.get(lock_name) is lock:
                    del values[lock_name]
            return value
