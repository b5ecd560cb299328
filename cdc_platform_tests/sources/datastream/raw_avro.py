"""Avro files put together byte by byte, for what no writer of Avro writes."""

import json
import zlib
from typing import Any, Final

SYNC: Final = b"s" * 16


def long(number: int) -> bytes:
    """Return a number as Avro writes it."""
    rest, octets = (number << 1) ^ (number >> 63), bytearray()
    while rest > 0x7F:
        octets.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*octets, rest])


def text(content: str | bytes) -> bytes:
    """Return a text, or bytes, as Avro writes it."""
    data = content.encode() if isinstance(content, str) else content
    return long(len(data)) + data


def avro(schema: Any, records: bytes = b"", count: int = 1, codec: str = "null") -> bytes:
    """Return a file of one block, whose bytes may be anything."""
    schema_text = schema if isinstance(schema, str) else json.dumps(schema)
    meta = long(2) + text("avro.schema") + text(schema_text) + text("avro.codec") + text(codec) + long(0)
    return b"Obj\x01" + meta + SYNC + long(count) + text(records) + SYNC


def record(name: str, **types: Any) -> dict[str, Any]:
    """Return the schema of a record."""
    fields = [{"name": field, "type": kind} for field, kind in types.items()]
    return {"type": "record", "name": name, "fields": fields}


def in_namespace(namespace: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type in a namespace, which what lies in it has, too."""
    return {**schema, "namespace": namespace}


def event(**types: Any) -> dict[str, Any]:
    """Return the schema of an event with nothing but a payload."""
    return record("event", payload=record("payload", **types))


def chain(length: int) -> list[dict[str, Any]]:
    """Return types, each of which contains the previous one by its name."""
    first = record("r0", x="int")
    return [first, *(record(f"r{place}", x=f"r{place - 1}") for place in range(1, length))]


def deflated(data: bytes) -> bytes:
    """Return bytes as Avro's codec `deflate` has them."""
    return zlib.compress(data, 9, -zlib.MAX_WBITS)
