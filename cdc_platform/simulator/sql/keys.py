"""Key sets of Spanner's read calls: single keys, ranges, or all."""

from collections.abc import Callable, Sequence
from typing import Any

from cdc_platform.simulator.history.transactions import Key
from cdc_platform.simulator.sql.reads import Version


def chosen_keys(version: Version, key_set: Any) -> Sequence[Key]:
    """Return the keys of a table that a key set chooses, in their order."""
    if key_set.all_:
        return version.keys
    codes = [column.type.code for column in version.table.key_columns]
    single = {_key(values, codes) for values in key_set.keys}
    ranges = [_range(bounds, codes) for bounds in key_set.ranges]
    return [key for key in version.keys if key in single or any(holds(key) for holds in ranges)]


def _range(bounds: Any, codes: Sequence[str]) -> Callable[[Key], bool]:
    start_kind, end_kind = bounds.WhichOneof("start_key_type"), bounds.WhichOneof("end_key_type")
    start = _key(getattr(bounds, start_kind), codes) if start_kind else ()
    end = _key(getattr(bounds, end_kind), codes) if end_kind else ()

    def holds(key: Key) -> bool:
        # A bound that names only the first columns of the key counts for them alone.
        low, high = key[: len(start)], key[: len(end)]
        is_above = low > start or (start_kind != "start_open" and low == start)
        return is_above and (high < end or (end_kind != "end_open" and high == end))

    return holds


def _key(values: Any, codes: Sequence[str]) -> Key:
    return tuple(
        int(value.string_value) if code == "INT64" else value.string_value
        for value, code in zip(values.values, codes, strict=False)
    )
