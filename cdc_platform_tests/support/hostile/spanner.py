"""Records of a change stream with values that nothing can hold, and the reasons that quarantine has."""

import json
from collections.abc import Mapping
from copy import deepcopy
from itertools import count
from typing import Any, Final, NamedTuple

from cdc_platform.simulator.wire.simulator_settings import Dialect
from cdc_platform_tests.sources.spanner.servers import DATA
from cdc_platform_tests.support.hostile.values import BEYOND, EXPONENTS, HALF, NUMBER, nested, written
from cdc_platform_tests.support.proxies.spanner_additions import Addition, Record

TABLE: Final = "accounts"
_NEW: Final = count(9_000_000)
_UNSOUND: Final = (
    "a text of the record is not Unicode (half of a surrogate pair), or a number of it is beyond 64 bits"
)
_MALFORMED: Final = "the record does not have the shape that the source documents; report it with its text: "


class BadRecord(NamedTuple):
    """Flaw of a record.

    Args:
        reason: a part of the reason that quarantine has for it.
        changes: of members of the record.
        values: of columns.
        keys: of columns of the key.
        raw: what is written, as it is, in the place of `NUMBER`.
        dialect: the only one that can have it; None for both.
    """

    reason: str
    changes: Mapping[str, Any] = {}
    values: Mapping[str, Any] = {}
    keys: Mapping[str, Any] = {}
    raw: str | None = None
    dialect: Dialect | None = None

    def next_to_sound(self, name: str) -> Addition:
        """Return what makes the record, which inserts a row, of a good one."""

        def make(good: Record) -> str:
            record = deepcopy(good)
            key = str(next(_NEW))
            (first, *_) = record["mods"]
            mod = {**first, "keys": {"account_id": key} | dict(self.keys)}
            mod["new_values"] = {**first["new_values"], **self.values}
            record |= {"server_transaction_id": f"bad {name}", "mods": [mod], "mod_type": "INSERT"}
            record |= {"number_of_records_in_transaction": 1, "number_of_partitions_in_transaction": 1}
            text = json.dumps({DATA: {**record, **self.changes}})
            return text if self.raw is None else written(self.raw, text)

        return make


def _unfit(column: str, shown: str) -> str:
    return f"`{column}` of `accounts` is INT64, which cannot hold: {shown}"


def _columns(**changes: Any) -> Mapping[str, Any]:
    plain = {"name": "account_id", "type": {"code": "INT64"}, "is_primary_key": True, "ordinal_position": 1}
    return {"column_types": [{**plain, **changes}]}


def _array_of(dimensions: int) -> dict[str, Any]:
    column_type: dict[str, Any] = {"code": "INT64"}
    for _ in range(dimensions):
        column_type = {"code": "ARRAY", "array_element_type": column_type}
    return column_type


def _postgresql(**parts: Any) -> BadRecord:
    return BadRecord(_UNSOUND, **parts, dialect=Dialect.POSTGRESQL)


BAD: Final = {
    "type": BadRecord(_UNSOUND, _columns(type={"code": HALF})),
    "records": BadRecord(_UNSOUND, {"number_of_records_in_transaction": BEYOND}),
    "partitions": BadRecord(_UNSOUND, {"number_of_partitions_in_transaction": BEYOND}),
    "exponent": BadRecord(_unfit("balance", EXPONENTS[0]), values={"balance": EXPONENTS[0]}),
    "key with an exponent": BadRecord(_unfit("account_id", "1e999999"), keys={"account_id": "1e999999"}),
    "beyond": BadRecord(_unfit("balance", str(BEYOND)), values={"balance": str(BEYOND)}),
    "arrays": BadRecord(_unfit("balance", "[[[["), values={"balance": NUMBER}, raw=nested(500)),
    "objects": BadRecord(
        _unfit("balance", '{"a":{"a":'), values={"balance": NUMBER}, raw=nested(400, '{"a":', "}")
    ),
    "count of another shape": BadRecord(
        f"{_MALFORMED}ValueError", {"number_of_records_in_transaction": "one"}
    ),
    "position of a column": BadRecord(_MALFORMED, _columns(ordinal_position=BEYOND)),
    "dimensions": BadRecord(_MALFORMED, _columns(type=_array_of(150))),
    "key without a name": BadRecord(_MALFORMED, _columns(name="")),
    "table without a name": BadRecord(_MALFORMED, {"table_name": ""}),
    "flag of another shape": BadRecord(_MALFORMED, {"is_system_transaction": "no"}),
    "table of another shape": BadRecord(_MALFORMED, {"table_name": 5}),
    "mods of another shape": BadRecord(_MALFORMED, {"mods": None}, dialect=Dialect.POSTGRESQL),
    "table": _postgresql(changes={"table_name": HALF}),
    "transaction": _postgresql(changes={"server_transaction_id": f"bad {HALF}"}),
    "tag": _postgresql(changes={"transaction_tag": HALF}),
    "kind": _postgresql(changes={"mod_type": HALF}),
    "capture": _postgresql(changes={"value_capture_type": HALF}),
    "column": _postgresql(changes=_columns(name=HALF)),
    "key": _postgresql(keys={"account_id": HALF}),
    "text": _postgresql(values={"owner": HALF}),
    "array": _postgresql(values={"labels": ["a", HALF]}),
    "name": _postgresql(values={HALF: "1"}),
    "infinite number": BadRecord(
        _unfit("balance", '"Infinity"'),
        values={"balance": NUMBER},
        raw=EXPONENTS[0],
        dialect=Dialect.POSTGRESQL,
    ),
}
"""Records by what is wrong with them."""


def bad_records(dialect: Dialect) -> Mapping[str, BadRecord]:
    """Return the records that a database of the dialect can send."""
    return {name: bad for name, bad in BAD.items() if bad.dialect in (None, dialect)}


def is_of_accounts(record: Record) -> bool:
    """Return whether a record names the columns of a row of `accounts`."""
    return bool(record["table_name"] == TABLE and record["mod_type"] != "DELETE")
