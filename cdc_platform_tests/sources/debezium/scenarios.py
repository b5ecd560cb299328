"""Scenarios of a table: what a connector sends of them, and what each transaction leaves."""

from dataclasses import dataclass, field
from typing import Final

from hypothesis import strategies as st

from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER
from cdc_platform_tests.support.debezium.connector import Connector

Row = tuple[int, int, str | None]
"""Key, number and large value of a row; no two writes give a row the same number."""
KEYS: Final = st.integers(1, 6)
ACTIONS: Final = ("move", "update", "insert", "move", "update", "move", "delete", "update", "truncate")
IS_SENT: Final = st.sampled_from((False, False, True))
STEPS: Final = st.lists(
    st.lists(st.tuples(st.sampled_from(ACTIONS), KEYS, KEYS, IS_SENT), min_size=2, max_size=5),
    min_size=5,
    max_size=8,
)


@dataclass
class Scenario:
    """A table that transactions change, and its connector, which leaves large values out of updates.

    Args:
        sent: what the connector has sent.
        rows: the rows that there are, by key.
        written: every row that an insert or an update has written.
        versions: every row that a transaction has left.
    """

    sent: Connector = field(default_factory=Connector)
    rows: dict[int, Row] = field(default_factory=dict)
    written: set[Row] = field(default_factory=set)
    versions: set[Row] = field(default_factory=set)

    def step(self, action: str, key: int, other: int, *, is_sent: bool) -> None:
        """Change a row near a key, or make one; ``is_sent`` means that its large value is a new one."""
        number, free = (
            len(self.sent.lines),
            next(place for place in range(other, 99) if place not in self.rows),
        )
        key = min(self.rows, key=lambda place: abs(place - key), default=key)
        if action == "truncate":
            self.rows.clear()
            self.sent.truncate()
        elif action == "insert" or not self.rows:
            row = self._write((free, number, f"large {number}" if is_sent else None))
            self.sent.insert(free, number, big=row[2])
        elif action == "delete":
            del self.rows[key]
            self.sent.delete(key)
        else:
            big = f"large {number}" if is_sent else self.rows[key][2]
            shown = DEFAULT_PLACEHOLDER if big is not None and not is_sent else big
            if action == "move":
                del self.rows[key]
                self._write((free, number, big))
                self.sent.move(key, free, n=number, big=shown)
            else:
                self._write((key, number, big))
                self.sent.update(key, n=number, big=shown)

    def _write(self, row: Row) -> Row:
        self.rows[row[0]] = row
        self.written.add(row)
        return row


@st.composite
def scenarios(draw: st.DrawFn) -> tuple[Scenario, list[list[str]]]:
    """A scenario, and the portions in which its messages arrive: of any size, each from wherever repeated."""
    scenario = Scenario()
    first = [("insert", key, 0, True) for key in (1, 2, 3)]
    for steps in [first, *draw(STEPS)]:
        scenario.sent.begin()
        for action, key, other, is_sent in steps:
            scenario.step(action, key, other, is_sent=is_sent)
        scenario.sent.end()
        scenario.versions |= set(scenario.rows.values())
    lines = scenario.sent.lines
    ends = sorted({len(lines), *draw(st.sets(st.integers(1, len(lines)), min_size=1, max_size=2))})
    begins = [0, *(draw(st.integers(0, end)) for end in ends[:-1])]
    return scenario, [lines[begun:end] for begun, end in zip(begins, ends, strict=True)]
