"""Lines of Debezium's messages with values that nothing can hold, and the reasons that quarantine has."""

from itertools import count
from typing import Any, Final

from cdc_platform_tests.sources.debezium.written_events import COLUMNS, TABLE, envelope, line
from cdc_platform_tests.support.hostile.values import (
    BEYOND,
    COLLIDING,
    DEEP,
    EXPONENTS,
    HALF,
    NOT_UNICODE,
    NUMBER,
    Bad,
    nested,
    written,
)

CONTROL: Final = "bell\x07"
"""A name of a column that a terminal would obey."""
LONG_TEXT: Final = "x" * 2_000_000
FIRST_LSN: Final = 1_000
TYPES: Final = {
    **COLUMNS[TABLE],
    **dict.fromkeys(("", CONTROL, *(name for pair in COLLIDING.values() for name in pair)), "text"),
    "j": "jsonb",
    "h": "hstore",
    "d": "numeric",
    "f": "real",
}
DECLARED: Final = dict.fromkeys((TABLE, f"{HALF}.orders", f"public.{HALF}"), TYPES)
"""Columns of all tables that the lines name."""
_LSN: Final = count(FIRST_LSN)


def inserted(key: Any = 2, *, text: Any = "a", **rest: Any) -> str:
    """Return the line of an inserted row."""
    return line(envelope("c", after={"id": key, "n": 1, "big": text}, **rest), {"id": key})


def _event(source: dict[str, Any] | None = None, /, **changes: Any) -> str:
    """Return the line of an inserted row with other values, and its own place in the log."""
    lsn = next(_LSN)
    block = {"lsn": lsn, "sequence": None, "txId": lsn, **(source or {})}
    rest = {
        name: changes.pop(name)
        for name in ("transaction", "timestamp", "offset", "partition")
        if name in changes
    }
    around = {name: rest.pop(name) for name in tuple(rest) if name != "transaction"}
    row = {"id": lsn, "n": 1, "big": "a", **changes}
    return line(envelope("c", after=row, source=block, **rest), {"id": row["id"]}, **around)


def _no_value(column: str, kind: str) -> str:
    return f"The value of the column `{column}` is not a value of {kind} as it arrives"


_BEYOND_BITS: Final = f"A number of the event is beyond 64 bits: {BEYOND}."
OF_LINE: Final = "The line cannot be read as a message: "
OF_MESSAGE: Final = "The message cannot be read: "
_DEEP: Final = f"{OF_LINE}It is nested too deeply."
_EXPONENT: Final = f"{OF_LINE}It has a number with too large an exponent."
BAD: Final = {
    "text": Bad(_event(big=HALF), f"`new_values.big` {NOT_UNICODE}"),
    "text of another type": Bad(_event(big=[HALF]), _no_value("big", "text")),
    "json": Bad(_event(j={"a": HALF}), _no_value("j", "jsonb")),
    "name in json": Bad(_event(j={HALF: 1}), _no_value("j", "jsonb")),
    "hstore": Bad(_event(h={"a": HALF}), _no_value("h", "hstore")),
    "key of hstore": Bad(_event(h={HALF: "a"}), _no_value("h", "hstore")),
    "array": Bad(_event(xs=[1, HALF]), _no_value("xs", "smallint[]")),
    "key": Bad(_event(id=HALF), _no_value("id", "bigint")),
    "column": Bad(_event(**{HALF: "a"}), "nothing says what the column `\\ud800` of `public.orders` is"),
    "schema": Bad(_event({"schema": HALF}), f"`table_name` {NOT_UNICODE}; `metadata.schema` {NOT_UNICODE}"),
    "table": Bad(_event({"table": HALF}), f"`table_name` {NOT_UNICODE}; `metadata.table` {NOT_UNICODE}"),
    **{
        f"order of {order} in a transaction": Bad(
            _event(transaction={"id": "7:500", "total_order": order}),
            f"`transaction.total_order` is not a position in a transaction: {order}.",
        )
        for order in (10**10, -1)
    },
    "table without a name": Bad(_event({"table": ""}), "The event does not name its table"),
    "number beyond a real": Bad(_event(f=1e300), _no_value("f", "real")),
    "server": Bad(_event({"name": HALF}), f"the identity of the event {NOT_UNICODE}"),
    "snapshot": Bad(_event({"snapshot": HALF}), f"`metadata.snapshot` {NOT_UNICODE}"),
    "transaction": Bad(
        _event({"txId": None}, transaction={"id": f"{HALF}:1", "total_order": 1}),
        f"`server_transaction_id` {NOT_UNICODE}",
    ),
    "moment in microseconds": Bad(_event({"ts_us": BEYOND}), _BEYOND_BITS),
    "moment in milliseconds": Bad(_event({"ts_ms": BEYOND}), _BEYOND_BITS),
    "order in transaction": Bad(_event(transaction={"id": "7:1", "total_order": BEYOND}), _BEYOND_BITS),
    "moment beyond the years": Bad(
        _event({"ts_us": 2**62}), "`source_timestamp` is outside the years 1 to 9999"
    ),
    "name without a character": Bad(
        _event(**{"": "a"}), "No column of a lake can have the name of the column `` of `public.orders`."
    ),
    **{
        name: Bad(
            _event(**{one: "a", other: "b"}),
            f"`{one}` and `{other}` of `public.orders` differ in case only, and are one to the lake",
        )
        for name, (one, other) in COLLIDING.items()
    },
    "arrays in json": Bad(written(nested(DEEP), _event(j=NUMBER)), _DEEP),
    "objects in json": Bad(written(nested(DEEP, '{"a":', "}"), _event(j=NUMBER)), _DEEP),
    "arrays in an array": Bad(written(nested(900), _event(xs=NUMBER)), _no_value("xs", "smallint[]")),
    "digits": Bad(written("9" * 5_000, _event(d=NUMBER)), "It has a number of more than 4300 digits."),
    "no json": Bad("{", OF_LINE),
}
"""Lines by what is wrong with them, each at its own place in the log."""
BAD_NUMBERS: Final = {
    "value": _event(big=NUMBER),
    "integer": _event(id=NUMBER),
    "transaction order": _event(transaction={"id": "7:1", "total_order": NUMBER}),
    "position": _event({"lsn": NUMBER}),
    "moment": _event({"ts_us": NUMBER}),
    "offset": _event(offset=NUMBER),
    "partition": _event(partition=NUMBER),
    "timestamp": _event(timestamp=NUMBER),
}
"""Lines with a place for a number."""
BAD_LINES: Final = {
    **BAD,
    **{
        f"exponent as {name}": Bad(written(EXPONENTS[0], text), _EXPONENT)
        for name, text in BAD_NUMBERS.items()
    },
    "digits of an offset": Bad(written("1e999999", BAD_NUMBERS["offset"]), "1E+999999 has too many digits."),
}
NOT_UTF8: Final = (
    _event(big="OCTET").encode().replace(b"OCTET", b"\xff"),
    f"{OF_LINE}It is not UTF-8: byte ",
)
"""A line of a file, and its reason."""
GOOD: Final = {101: "a", 102: LONG_TEXT, 103: "\U0001f600"}
"""Texts of the good rows by their keys."""


def good_lines() -> list[str]:
    """Return the lines of the good rows, one of which has a name that a terminal would obey."""
    events = {
        key: inserted(key, text=text, source={"lsn": 600 + key, "txId": key}) for key, text in GOOD.items()
    }
    return [*events.values(), _event(id=104, **{CONTROL: "c"})]


BAD_MESSAGES: Final = {
    name: bad
    for name, bad in BAD_LINES.items()
    if name
    not in (
        *("no json", "digits of an offset", "exponent as offset", "exponent as partition"),
        "exponent as timestamp",
    )
}
"""Lines whose key or value is bad, which are all that a message of a topic has."""
