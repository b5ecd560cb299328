"""The changes of a simulated history in the form in which other readers of the stream give them."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from cdc_platform.simulator.history.history import History
from cdc_platform.simulator.history.history_file import transaction_line
from cdc_platform.simulator.history.transactions import Transaction
from cdc_platform.simulator.server import Simulator


class ReadChange(NamedTuple):
    """A change of one row; keys and values are JSON objects with sorted names, their numbers as texts."""

    commit_micros: int
    transaction: str
    table: str
    mod_type: str
    keys: str
    values: str
    """Of the columns outside the key; `null` for a DELETE."""


def changes_until(simulator: Simulator, end_micros: int) -> "Counter[ReadChange]":
    """Return all changes of the stream that were committed at or before a moment.

    The columns are those that the stream watches; an update of none of them is not a change.
    """
    counts = Counter[ReadChange]()
    for transaction in simulator.history.serial():
        if transaction.commit_micros <= end_micros:
            counts.update(_changes_of(transaction, simulator.history))
    return counts


def _changes_of(transaction: Transaction, history: History) -> Iterator[ReadChange]:
    tables = history.schemas.at(transaction.commit_micros).by_number
    lines = json.loads(transaction_line(transaction, history))["changes"]
    for change, line in zip(transaction.changes, lines, strict=True):
        table = tables[change.table]
        watched = {column.name for column in table.value_columns if column.slot in table.watched_slots}
        named = {column.name for column in table.value_columns if column.slot in change.slots}
        if line["mod_type"] != "UPDATE" or named & watched:
            new = line["new"]
            yield ReadChange(
                transaction.commit_micros,
                transaction.id,
                line["table"],
                line["mod_type"],
                object_text(line["keys"]),
                object_text(new and {name: value for name, value in new.items() if name in watched}),
            )


def object_text(value: Any) -> str:
    """Return keys or values as the text in which changes are compared."""
    return json.dumps(_with_texts(value), sort_keys=True)


def assert_same_changes(expected: "Counter[ReadChange]", read: "Iterable[ReadChange]") -> None:
    """Fail unless a reader gave every change, each once, and no other."""
    actual = Counter(read)
    missing, extra = expected - actual, Counter(set(actual) - set(expected))
    doubled = [change for change, times in actual.items() if times > expected[change] > 0]
    counts = (missing.total(), extra.total(), len(doubled))
    assert counts == (0, 0, 0), (
        f"{counts} missing, extra, doubled; {[*missing][:2]} {[*extra][:2]} {doubled[:2]}"
    )


def _with_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_texts(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_with_texts(item) for item in value]
    return str(value) if type(value) is int else value
