"""Limits for reading a file: few bytes can stand for unlimited depth, digits, values or text."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Bounds:
    """Limits for one file; anything beyond them is a fault.

    Args:
        max_depth: nesting of lists and objects in an Avro schema, and of arrays in a value.
        max_digits: digits of a decimal, before and after the point.
        max_values: values of one event: fields, and items of arrays, each of which takes memory.
        max_block_bytes: bytes of a JSON line, and of a decompressed Avro block.
    """

    max_depth: int = 64
    max_digits: int = 1_000
    max_values: int = 1_000_000
    max_block_bytes: int = 256 * 1024**2


DEFAULT_BOUNDS: Final = Bounds()
