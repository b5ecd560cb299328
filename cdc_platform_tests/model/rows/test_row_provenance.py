"""The changes that set the values of a row."""

from typing import Any

from cdc_platform.model.rows.row_provenance import LoggedChange, trace_provenance
from cdc_platform.model.stream.records import ChangeKind


def logged(kind: ChangeKind, values: dict[str, Any], left_out: tuple[str, ...] = ()) -> LoggedChange:
    """Return a change of a source whose events come in any order."""
    return LoggedChange(kind, 0, "", "", "", 0, 1, 1, values, not left_out, left_out=frozenset(left_out))


def test_an_update_sets_all_columns_that_it_does_not_leave_out() -> None:
    """A column that it does not know is NULL, and one that it leaves out has its earlier value."""
    changes = [
        logged(ChangeKind.INSERT, {"a": 1, "old": 2, "large": "x"}),
        logged(ChangeKind.UPDATE, {"a": 3}, ("large",)),
    ]
    provenance = trace_provenance(changes, ["a", "old", "large"])
    assert provenance.values == {"a": 3, "old": None, "large": "x"}
    assert provenance.set_by == {"a": 2, "old": 2, "large": 1}
