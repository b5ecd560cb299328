"""Tables that this process has found level with the log, so that later cycles need not load them."""

from dataclasses import dataclass, field

from cdc_platform.model.schema.column_versions import ColumnHistory


@dataclass
class LevelTables:
    """What tables and histories were when they were looked at last, by name.

    Nothing depends on it but time: with an empty one, a cycle looks at every table.
    """

    _found: dict[str, tuple[int, ColumnHistory | None]] = field(default_factory=dict)
    _mains: dict[str, int] = field(default_factory=dict)

    def note(self, name: str, snapshot_id: int, columns: ColumnHistory | None) -> None:
        """Take note that `main` of a table is the snapshot that a cut names, with all of its columns."""
        self._found[name] = (snapshot_id, columns)

    def has(self, name: str, snapshot_id: int | None, columns: ColumnHistory | None) -> bool:
        """Return whether the same was found of a table, and nothing has been built upon it since."""
        return self._found.get(name) == (snapshot_id, columns)

    def note_main(self, name: str, snapshot_id: int) -> None:
        """Take note that `main` of a table is, or was built upon, a snapshot."""
        self._mains[name] = snapshot_id

    def has_main(self, name: str, snapshot_id: int) -> bool:
        """Return whether the same was found of a table."""
        return self._mains.get(name) == snapshot_id

    def forget(self, name: str) -> None:
        """Let the next cycle look at a table, since this process builds upon it."""
        self._found.pop(name, None)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of any table."""
        return not self._found
