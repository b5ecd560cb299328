"""Tables that this process has found level with the log, so that later cycles need not load them."""

from dataclasses import dataclass, field

from cdc_platform.model.schema.column_versions import ColumnHistory


@dataclass
class LevelTables:
    """What tables and histories were when they were looked at last, by name.

    Nothing depends on it but time: with an empty one, a cycle looks at every table.
    """

    _found: dict[str, tuple[int, ColumnHistory | None]] = field(default_factory=dict)

    def note(self, name: str, snapshot_id: int, columns: ColumnHistory | None) -> None:
        """Take note that `main` of a table is the snapshot that a cut names, with all of its columns."""
        self._found[name] = (snapshot_id, columns)

    def has(self, name: str, snapshot_id: int | None, columns: ColumnHistory | None) -> bool:
        """Return whether the same was found of a table, and nothing has been built upon it since."""
        return self._found.get(name) == (snapshot_id, columns)

    def compare(self, name: str, main_id: int | None) -> None:
        """Forget a table unless `main` still is the snapshot that was found: another process has moved it."""
        if name in self._found and self._found[name][0] != main_id:
            self.forget(name)

    def forget(self, name: str) -> None:
        """Let the next cycle look at a table."""
        self._found.pop(name, None)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of any table."""
        return not self._found
