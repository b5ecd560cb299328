"""The changes of a simulated history in the form in which other readers of the stream give them."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from cdc_platform.simulator.history_file import transaction_line
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
    """Return all changes of the stream that were committed at or before a moment."""
    history = simulator.history
    return Counter(
        ReadChange(
            one.commit_micros,
            one.id,
            change["table"],
            change["mod_type"],
            object_text(change["keys"]),
            object_text(change["new"]),
        )
        for one in history.serial()
        if one.commit_micros <= end_micros
        for change in json.loads(transaction_line(one, history))["changes"]
    )


def object_text(value: Any) -> str:
    """Return keys or values as the text in which changes are compared."""
    return json.dumps(_with_texts(value), sort_keys=True)


def assert_same_changes(expected: "Counter[ReadChange]", read: "Iterable[ReadChange]") -> None:
    """Fail unless a reader gave every change, each once, and no other."""
    found = Counter(read)
    missing, extra = expected - found, Counter(set(found) - set(expected))
    doubled = [change for change, times in found.items() if times > expected[change] > 0]
    counts = {"missing": missing.total(), "extra": extra.total(), "doubled": len(doubled)}
    assert {"missing": 0, "extra": 0, "doubled": 0} == counts, [*missing][:3] + [*extra][:3] + doubled[:3]


def _with_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_texts(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_with_texts(item) for item in value]
    return str(value) if type(value) is int else value
