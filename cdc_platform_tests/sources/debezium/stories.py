"""Stories of a table: what a connector sends of them, and what each transaction leaves."""

from dataclasses import dataclass, field
from typing import Final

from hypothesis import strategies as st

from cdc_platform.sources.debezium.connector import DEFAULT_PLACEHOLDER
from cdc_platform_tests.sources.debezium.test_redelivery import Connector

Row = tuple[int, int, str | None]
"""Key, number and large value of a row; no two writes give a row the same number."""
KEYS: Final = st.integers(1, 4)
ACTIONS: Final = ("update", "update", "delete", "move", "move", "truncate")
STEPS: Final = st.lists(
    st.lists(st.tuples(st.sampled_from(ACTIONS), KEYS, KEYS, st.booleans()), min_size=1, max_size=5),
    min_size=2,
    max_size=8,
)


@dataclass
class Story:
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
        """Do to a row what can be done to it; ``is_sent`` tells that its large value is a new one."""
        number = len(self.sent.lines)
        if action == "truncate":
            self.rows.clear()
            self.sent.truncate()
        elif key not in self.rows:
            big = f"large {number}" if is_sent else None
            self._write((key, number, big))
            self.sent.insert(key, number, big=big)
        elif action == "delete":
            del self.rows[key]
            self.sent.delete(key)
        else:
            big = f"large {number}" if is_sent else self.rows[key][2]
            shown = DEFAULT_PLACEHOLDER if big is not None and not is_sent else big
            if action == "move" and other not in self.rows:
                del self.rows[key]
                self._write((other, number, big))
                self.sent.move(key, other, n=number, big=shown)
            else:
                self._write((key, number, big))
                self.sent.update(key, n=number, big=shown)

    def _write(self, row: Row) -> None:
        self.rows[row[0]] = row
        self.written.add(row)


@st.composite
def stories(draw: st.DrawFn) -> tuple[Story, list[list[str]]]:
    """A story, and the portions in which its messages arrive: of any size, each from wherever repeated."""
    story = Story()
    for steps in draw(STEPS):
        story.sent.begin()
        for action, key, other, is_sent in steps:
            story.step(action, key, other, is_sent=is_sent)
        story.sent.end()
        story.versions |= set(story.rows.values())
    lines, done, portions = story.sent.lines, 0, list[list[str]]()
    while done < len(lines):
        end = draw(st.integers(min(done + 6, len(lines)), len(lines)))
        portions.append(lines[draw(st.integers(0, done)) : end])
        done = end
    return story, portions
