"""A progress that keeps the steps that are over, for tests of what steps report."""

from collections.abc import Iterator
from contextlib import contextmanager

from cdc_platform.model.base.progress import Progress, Step


class KeptProgress(Progress):
    """The steps of a pipeline; ``over`` are those that are over, in the order of their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.over: list[Step] = []

    @contextmanager
    def step(self, name: str, unit: str = "", total: int | None = None, done: int = 0) -> Iterator[Step]:
        """Yield a step, and keep it afterwards."""
        with super().step(name, unit, total, done) as begun:
            yield begun
        self.over.append(begun)

    def counted(self) -> list[tuple[str, str, int, int | None]]:
        """Return name, unit, done and total of each step that has counted something."""
        return [(step.name, step.unit, step.done, step.total) for step in self.over if step.unit]
