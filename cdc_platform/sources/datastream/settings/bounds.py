"""Bounds of reading a file: few bytes can stand for endless depth, digits, values or text."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Bounds:
    """Bounds of one file; whatever is beyond them is a fault.

    Args:
        most_depth: of an Avro schema, how deep its lists and objects lie in each other; of a value, how deep
            arrays do.
        most_digits: digits of a decimal, before and after the point.
        most_values: values of one event: fields, and items of arrays, each of which takes memory of its own.
        most_block_bytes: bytes of a line of JSON, and of a block of Avro once it is decompressed.
    """

    most_depth: int = 64
    most_digits: int = 1_000
    most_values: int = 1_000_000
    most_block_bytes: int = 256 * 1024**2


DEFAULT_BOUNDS: Final = Bounds()
