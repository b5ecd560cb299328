"""Cache of the tables that had nothing to merge when this process last examined them."""

from dataclasses import dataclass, field

from cdc_platform.model.schema.column_versions import ColumnHistory


@dataclass
class ExaminedTables:
    """Snapshots and columns of tables and histories when they were last examined, by name.

    The cache saves time only: with an empty one, a cycle examines every table.
    """

    _states: dict[str, tuple[int, ColumnHistory | None]] = field(default_factory=dict)
    _files: dict[str, str] = field(default_factory=dict)

    def note(self, name: str, snapshot_id: int, columns: ColumnHistory | None, file: str) -> None:
        """Record that `main` of a table is the snapshot that a cut names, with all of its columns.

        ``file`` is the location of the table's metadata file.
        """
        self._states[name], self._files[name] = (snapshot_id, columns), file

    def has_file(self, name: str, file: str) -> bool:
        """Return whether a table was noted with the same metadata file, so nothing has changed it since."""
        return self._files.get(name) == file

    def has(self, name: str, snapshot_id: int | None, columns: ColumnHistory | None) -> bool:
        """Return whether a table was noted with the same snapshot and columns, and not forgotten since."""
        return self._states.get(name) == (snapshot_id, columns)

    def compare(self, name: str, main_id: int | None) -> None:
        """Forget a table if another process has moved its `main` away from the noted snapshot."""
        if name in self._states and self._states[name][0] != main_id:
            self.forget(name)

    def forget(self, name: str) -> None:
        """Make the next cycle examine a table."""
        self._states.pop(name, None)
        self._files.pop(name, None)

    @property
    def is_empty(self) -> bool:
        """Whether no table is noted."""
        return not self._states
