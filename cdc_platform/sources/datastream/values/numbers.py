"""Numbers as the change log writes them."""

import math
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any, Final

import numpy as np

from cdc_platform.model.base.number_texts import decimal_number
from cdc_platform.model.schema.table_schema import MAX_PLAIN_INTEGER

_EXACT: Final = Context(prec=20_000, Emax=19_999, Emin=-19_999, traps=[Inexact, InvalidOperation, Overflow])
_NAN: Final = "NaN"


def plain_integer(value: int) -> int | str:
    """Return an integer of 64 bits as a number, or as text where readers of JSON could round it."""
    return value if -MAX_PLAIN_INTEGER <= value <= MAX_PLAIN_INTEGER else str(value)


def double(value: float) -> float | str:
    """Return a float as JSON can have it: NaN and the infinities are texts."""
    if math.isfinite(value):
        return value
    return _NAN if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def single(value: float) -> float | str:
    """Return a float of 32 bits as the double that it is: columns of both types read one number from it."""
    if not math.isfinite(value):
        return double(value)
    with np.errstate(over="ignore"):
        rounded = np.float32(value)
    if not np.isfinite(rounded):
        raise ValueError(f"{value} is beyond a float of 32 bits")
    return float(rounded)


def decimal_text(value: Any, precision: int, scale: int) -> str:
    """Return a decimal with exactly the digits after the point that its type has.

    Raises:
        ValueError: It is no number, or has more digits than its type.
    """
    try:
        number = _EXACT.quantize(decimal_number(value), Decimal((0, (1,), -scale)))
    except (Inexact, InvalidOperation, Overflow):
        raise ValueError(
            f"{value!r} is no decimal of {precision} digits, {scale} of them after the point"
        ) from None
    if not number.is_finite() or (number and number.adjusted() + 1 > precision - scale):
        raise ValueError(f"{value!r} has more digits than a decimal of {precision}, {scale} after the point")
    return format(number or abs(number), "f")
