"""Files of Datastream with values that nothing can hold, and the reasons that quarantine has for them."""

import gzip
import json
from copy import deepcopy
from hashlib import sha256
from itertools import count
from typing import Any, Final

from cdc_platform_tests.sources.datastream.generated_events import json_event, scenario
from cdc_platform_tests.sources.datastream.raw_avro import avro, deflated, event, record, text
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
from cdc_platform_tests.unified_types import UNIFIED, avro_file, event_schema

Payload = dict[str, Any]
MAX_BLOCK_BYTES: Final = 2**20
MAX_DEPTH: Final = 40
TABLE: Final = "shop.items"
COLUMNS: Final = {
    TABLE: {"id": "INT64", "v": "INT64", "t": "STRING", "note": "JSON"},
    "s.t": {"t": "JSON"},
}
SETTINGS: Final = {
    "max_block_bytes": MAX_BLOCK_BYTES,
    "max_depth": MAX_DEPTH,
    "max_digits": 200,
    "columns": COLUMNS,
}
"""Of the source, as YAML has them: bounds that small files reach, and types."""
_SERIAL: Final = count(1_000)
_PLAIN: Final = json_event(scenario("mysql")[5])


def _event(metadata: Payload | None = None, payload: Payload | None = None, **changes: Any) -> str:
    """Return the line of a written row with other values, an identity and its own place."""
    event, serial = deepcopy(_PLAIN), next(_SERIAL)
    event |= {"uuid": f"event-{serial}", "sort_keys": [1_762_000_001_000, "mysql-bin.999999", serial]}
    event["source_metadata"] |= {"log_position": serial, **(metadata or {})}
    event["payload"] = {"id": serial, "v": 1, "t": "a", "note": {"a": 1}, **(payload or {})}
    return json.dumps(event | changes)


def _row(**values: Any) -> str:
    return _event(payload=values)


def _half(path: str) -> str:
    return f"`{path}` {NOT_UNICODE}"


_DEEP: Final = "The line is not JSON (It is nested too deeply)"
BAD_LINES: Final = {
    "text": Bad(_row(t=HALF), _half("payload.t")),
    "json": Bad(_row(note={"a": HALF}), _half("payload.note.a")),
    "name in json": Bad(_row(note={HALF: 1}), _half("payload.note.\\ud800")),
    "array": Bad(_row(xs=["a", HALF]), _half("payload.xs")),
    "key": Bad(_row(id=HALF), _half("payload.id")),
    "column": Bad(_row(**{HALF: "a"}), _half("payload.\\ud800")),
    "identity": Bad(_event(uuid=HALF), _half("uuid")),
    "schema": Bad(_event(schema_key=HALF), _half("schema_key")),
    "database": Bad(_event({"database": HALF}), _half("source_metadata.database")),
    "table": Bad(_event({"table": HALF}), _half("source_metadata.table")),
    "moment": Bad(_event(source_timestamp=BEYOND), "`source_timestamp` is outside the years 1 to 9999"),
    "position": Bad(_event({"log_position": BEYOND}), "`log_position` is missing or not as documented"),
    "number": Bad(_row(v=BEYOND), f"`v`: {BEYOND}"),
    **{
        f"{exponent} as {column}": Bad(written(exponent, _row(**{column: NUMBER})), f"`{column}`: ")
        for exponent in EXPONENTS
        for column in ("v", "id")
    },
    "exponent of a position": Bad(
        written(EXPONENTS[0], _event({"log_position": NUMBER})),
        "`log_position` is missing or not as documented",
    ),
    "exponent of a moment": Bad(
        written(EXPONENTS[0], _event(source_timestamp=NUMBER)),
        f"`source_timestamp`: '{EXPONENTS[0]}' is not a moment",
    ),
    "digits of a position": Bad(
        _event({"log_position": "9" * 5_000}), "`log_position` is missing or not as documented"
    ),
    "digits of a moment": Bad(
        written("9" * 4_299, _event(source_timestamp=NUMBER)), "`source_timestamp` is not a moment"
    ),
    "digits of a number that is not a number": Bad(_row(v="1" * 40_000 + "x"), "`v`: "),
    "digits": Bad(written("9" * 5_000, _row(v=NUMBER)), "It has a number of more than 4300 digits"),
    "arrays in json": Bad(written(nested(DEEP), _row(note=NUMBER)), _DEEP),
    "objects in json": Bad(written(nested(DEEP, '{"a":', "}"), _row(note=NUMBER)), _DEEP),
    "arrays in metadata": Bad(
        written(nested(200), _event({"more": NUMBER})), "`source_metadata` is nested deeper than 100 levels"
    ),
    "long line": Bad(_row(t="x" * MAX_BLOCK_BYTES), f"bytes, more than `max_block_bytes`, {MAX_BLOCK_BYTES}"),
    "no json": Bad("{", "The line is not JSON ("),
}
"""Lines of one file by what is wrong with them."""
NOT_UTF8: Final = (
    _row(t="OCTET").encode().replace(b"OCTET", b"\xff"),
    "The line is not JSON (It is not UTF-8: byte ",
)


def good_lines() -> list[tuple[str, Payload]]:
    """Return lines of good rows, odd ones among them, and the columns that each has in the lake."""
    rows: list[tuple[Payload, Payload]] = [
        ({"id": 1}, {}),
        ({"id": 2, "t": "\U0001f600"}, {}),
        ({"id": 3, "": "none"}, {"_e3b0c4": "none"}),
        ({"id": 4, "bell\x07": "rings"}, {"bell\x07": "rings"}),
        *(
            ({"id": 5 + place, first: "x", other: "y"}, {_apart(first): "x", _apart(other): "y"})
            for place, (first, other) in enumerate(COLLIDING.values())
        ),
    ]
    plain = {"v": 1, "t": "a", "note": '{"a":1}'}
    return [
        (
            _row(**sent_value),
            {**plain, **{name: sent_value[name] for name in ("id", "t") if name in sent_value}, **kept_value},
        )
        for sent_value, kept_value in rows
    ]


def _apart(name: str) -> str:
    """Return what a column is called that another one would be taken for."""
    return f"{name}_{sha256(name.encode()).hexdigest()[:6]}"


def gzip_of_a_long_line() -> bytes:
    """Return a small file that unpacks to two good rows, and a line between them beyond the bound."""
    first, last = (_row(id=row["id"]) for row in GZIPPED)
    return gzip.compress("\n".join([first, '{"' + "x" * 2**24, last]).encode())


GZIPPED: Final = [{"id": key, "v": 1, "t": "a", "note": '{"a":1}'} for key in (21, 22)]
"""The rows in it."""
TOO_LONG: Final = f"The line has {2**24 + 2} bytes, more than `max_block_bytes`, {MAX_BLOCK_BYTES}"
BAD_KEY: Final = _half("keys._id")


def _avro_of(rows: list[Payload], **types: Any) -> bytes:
    columns: Payload = {"c0": "long", "t": "string", "j": UNIFIED["JSON"].schema("j"), **types}
    plain = {"t": '{"a":1}', "j": '{"a":1}'}
    return _of_its_own(avro_file(event_schema([*columns.items()]), [{**plain, **row} for row in rows]))


def _of_its_own(file: bytes) -> bytes:
    """Return a file whose events no other file has."""
    return file.replace(b"uuid-", f"{next(_SERIAL)}-".encode())


def _among_good(first: int, **bad: Any) -> bytes:
    """Return a file of three rows; that in the middle is bad."""
    return _avro_of([{"c0": first}, {"c0": first + 1, **bad}, {"c0": first + 2}])


def _nested_type(depth: int) -> Any:
    nested: Any = "int"
    for _ in range(depth):
        nested = {"type": "array", "items": nested}
    return nested


def _array(depth: int) -> Payload:
    """Return arrays in each other, as Avro stores them."""
    payload: Payload = {"nestedArray": None, "elementValue": 1}
    for _ in range(depth):
        payload = {"nestedArray": [payload], "elementValue": None}
    return payload


AVRO_FILES: Final[dict[str, tuple[bytes, tuple[int, ...], str]]] = {
    "text in json": (_among_good(100, j=json.dumps({"a": HALF})), (100, 102), _half("new_values.j")),
    "name in json": (_among_good(110, j=json.dumps({HALF: 1})), (110, 112), _half("new_values.j")),
    "text that is declared json": (
        _among_good(120, t=json.dumps({"a": HALF})),
        (120, 122),
        _half("new_values.t"),
    ),
    "column": (
        _avro_of([{"c0": 130, "COLUMN": "a"}], COLUMN="string").replace(b"COLUMN", b"\\ud800"),
        (),
        _half("column_types.name"),
    ),
    "not UTF-8": (
        _among_good(140, t="OCTETS").replace(b"OCTETS", b"\xff\xfe1234"),
        (140, 142),
        "The record is damaged: a text is not UTF-8: its byte 1 is 0xff",
    ),
    "deep schema": (
        avro(event(x=_nested_type(300))),
        (),
        "it is deeper than 40 levels; see the setting `max_depth`",
    ),
    "schema that no parser takes": (avro('{"type":' * 100_000), (), "(it is nested too deeply)"),
    "block of few bytes": (
        avro(event(x="string"), deflated(text("a" * 2**24)), codec="deflate"),
        (),
        "it has more than 1048576 bytes; see the setting `max_block_bytes`",
    ),
    "type in itself": (
        avro(event(x=record("r", r=["null", "r"])), b"\x02" * 20_000),
        (),
        "its type `r` contains itself",
    ),
    "arrays": (
        avro_file(
            event_schema([("c0", "long"), ("a", UNIFIED["ARRAY"].schema("a"))]),
            [{"c0": 150, "a": _array(41)}],
        ),
        (),
        "is damaged (it has a number for which its schema has no type or symbol)",
    ),
}
"""Files by what is wrong with them: their octets, the keys of their good rows, and a reason."""
