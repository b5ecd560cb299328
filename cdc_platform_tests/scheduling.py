"""Distribution of the test files among processes; the last one gets those that need no Spark."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController


class FromBothEnds(LoadFileScheduling):  # type: ignore[misc]  # xdist ships no types
    """Gives whole files to workers in the order of collection, and to the last worker from the end.

    Many files at the end wait for programs that they start, and leave a processor to the other workers. One
    more Spark would take that away again.
    """

    def _assign_work_unit(self, node: "WorkerController") -> None:
        if len(self.nodes) > 1 and node is self.nodes[-1]:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def sort_files(items: list[pytest.Item]) -> None:
    """Sort tests by file: those with Spark come first, and at both ends those that take longest."""
    with_spark = {item.path for item in items if "spark" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: _place(item, with_spark))


def _place(item: pytest.Item, with_spark: set[Path]) -> tuple[bool, ...]:
    forks, long, integration = (
        item.get_closest_marker(name) is not None for name in ("forks", "long", "integration")
    )
    if item.path in with_spark:
        return not forks, False, not long, not integration
    return not forks, True, integration, long
