"""Values of every type, often awkward ones: limits, NaN, infinities, NULLs in arrays, umlauts."""

import math
import random
from collections.abc import Callable
from datetime import date
from json import dumps
from typing import Any, Final

from cdc_platform.model.schema.table_schema import ARRAY, ColumnType
from cdc_platform.simulator.history.schema import SimTable
from cdc_platform.simulator.history.transactions import Key, Row
from cdc_platform.simulator.wire.values import UNKNOWN, Cell

_NULL, _SPECIAL, _HALF = 0.2, 0.3, 0.5
_LONGEST_ARRAY: Final = 4
_LETTERS: Final = 'abcdefghijklmnopqrstuvwxyz äöüß€漢字"\\\n\t/ '
_FIRST_DAY: Final = date(1, 1, 1).toordinal()
_LAST_DAY: Final = date(9999, 12, 31).toordinal()


def typed_row(dice: random.Random, table: SimTable, key: Key) -> Row:
    """Return a row of the table with random values of its columns' types."""
    return (*key, *(_cell(dice, column.type) for column in table.value_columns))


def text_of(dice: random.Random, size_bytes: int) -> str:
    """Return a text of about a size; it is repetitive, so that it is fast to generate."""
    part = "".join(dice.choice(_LETTERS) for _ in range(64))
    return part * (size_bytes // len(part.encode()) + 1)


def _cell(dice: random.Random, of_type: ColumnType) -> Cell:
    if dice.random() < _NULL:
        return None
    if of_type.code == ARRAY and of_type.element is not None:
        return tuple(_cell(dice, of_type.element) for _ in range(dice.randrange(_LONGEST_ARRAY)))
    return _MAKERS[of_type.code](dice)


def _float(dice: random.Random) -> float:
    if dice.random() < _SPECIAL:
        return dice.choice([math.nan, math.inf, -math.inf, 0.0, -0.0])
    return dice.uniform(-1e6, 1e6)


def _numeric(dice: random.Random) -> str:
    whole, fraction = dice.randrange(10 ** dice.randrange(1, 29)), dice.randrange(10**9)
    sign = "-" if whole and dice.random() < _HALF else ""
    return f"{sign}{whole}.{fraction:09d}".rstrip("0").rstrip(".")


def _text(dice: random.Random) -> str:
    return "".join(dice.choice(_LETTERS) for _ in range(dice.randrange(12)))


def _timestamp(dice: random.Random) -> str:
    day = date.fromordinal(dice.randint(_FIRST_DAY, _LAST_DAY)).isoformat()
    fraction = f".{dice.randrange(10**9):09d}".rstrip("0").rstrip(".")
    return f"{day}T{dice.randrange(24):02d}:{dice.randrange(60):02d}:{dice.randrange(60):02d}{fraction}Z"


def _json(dice: random.Random) -> str:
    value: Any = dice.choice([None, True, 1.5, "é", [], {"a": [1, None, "x"], "b": {"c": 2}}])
    return dumps(value, ensure_ascii=False, separators=(",", ":"))


def _uuid(dice: random.Random) -> str:
    digits = f"{dice.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def _interval(dice: random.Random) -> str:
    return f"P{dice.randrange(1, 10)}Y{dice.randrange(12)}M{dice.randrange(28)}DT{dice.randrange(24)}H30M1.5S"


_MAKERS: Final[dict[str, Callable[[random.Random], Cell]]] = {
    "BOOL": lambda dice: dice.random() < _HALF,
    "INT64": lambda dice: dice.choice([0, -1, 2**53 + 1, 2**63 - 1, -(2**63), dice.randrange(1000)]),
    "FLOAT32": _float,
    "FLOAT64": _float,
    "NUMERIC": _numeric,
    "STRING": _text,
    "BYTES": lambda dice: dice.randbytes(dice.randrange(9)),
    "DATE": lambda dice: date.fromordinal(dice.randint(_FIRST_DAY, _LAST_DAY)).isoformat(),
    "TIMESTAMP": _timestamp,
    "JSON": _json,
    "UUID": _uuid,
    "INTERVAL": _interval,
    "ENUM": lambda dice: dice.randrange(-1, 5),
    "PROTO": lambda dice: dice.randbytes(dice.randrange(9)),
    UNKNOWN: lambda dice: dice.choice([True, 7, -1.5, "", "null", "[1]", _text(dice)]),
}
