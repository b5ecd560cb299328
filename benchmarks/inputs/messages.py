"""Seeded answers of a change stream query, serialised as a server sends them."""

import json
import random
from collections.abc import Callable, Iterator

from google.cloud.spanner_v1.types import PartialResultSet, StructType, Type, TypeCode
from google.protobuf.struct_pb2 import ListValue, Value  # type: ignore[import-untyped]  # ships no types

from cdc_platform.model.base.timestamps import to_rfc3339

FIRST_COMMIT_MICROS = 1_700_000_000_000_000

CODES = ("INT64", "STRING", "NUMERIC", "DATE", "TIMESTAMP")


def columns_of(count: int) -> list[tuple[str, str, bool]]:
    """Return name, type and whether it is the key of each column of a table."""
    values = [(f"column_{place}", CODES[place % len(CODES)], False) for place in range(count - 2)]
    return [("account_id", "INT64", True), ("balance", "INT64", False), *values]


def struct(*fields: tuple[str, Type]) -> Type:
    """Return the type of a struct."""
    listed = [StructType.Field(name=name, type_=kind) for name, kind in fields]
    return Type(code=TypeCode.STRUCT, struct_type=StructType(fields=listed))


def array(element: Type) -> Type:
    """Return the type of an array."""
    return Type(code=TypeCode.ARRAY, array_element_type=element)


def change_record_type() -> StructType:
    """Return the row type of `SELECT ChangeRecord FROM READ_stream(...)`."""
    text, number, flag, moment, document = (
        Type(code=code)
        for code in (TypeCode.STRING, TypeCode.INT64, TypeCode.BOOL, TypeCode.TIMESTAMP, TypeCode.JSON)
    )
    column = struct(
        ("name", text), ("type", document), ("is_primary_key", flag), ("ordinal_position", number)
    )
    mod = struct(("keys", document), ("new_values", document), ("old_values", document))
    data = struct(
        ("commit_timestamp", moment),
        ("record_sequence", text),
        ("server_transaction_id", text),
        ("is_last_record_in_transaction_in_partition", flag),
        ("table_name", text),
        ("column_types", array(column)),
        ("mods", array(mod)),
        ("mod_type", text),
        ("value_capture_type", text),
        ("number_of_records_in_transaction", number),
        ("number_of_partitions_in_transaction", number),
        ("transaction_tag", text),
        ("is_system_transaction", flag),
    )
    child = struct(("token", text), ("parent_partition_tokens", array(text)))
    children = struct(
        ("start_timestamp", moment), ("record_sequence", text), ("child_partitions", array(child))
    )
    record = struct(
        ("data_change_record", array(data)),
        ("heartbeat_record", array(struct(("timestamp", moment)))),
        ("child_partitions_record", array(children)),
    )
    return StructType(fields=[StructType.Field(name="ChangeRecord", type_=array(record))])


def to_value(item: object) -> Value:
    """Return a protobuf value: lists become lists, everything else what Spanner sends for it."""
    if isinstance(item, bool):
        return Value(bool_value=item)
    if isinstance(item, str):
        return Value(string_value=item)
    if isinstance(item, list):
        return Value(list_value=ListValue(values=[to_value(element) for element in item]))
    raise TypeError(f"not a value of a change record: {item!r}")


def data_change_record(number: int, columns: int, chance: random.Random, of: int = 1) -> list[object]:
    """Return one data change record with one mod, in a transaction of some records."""
    types: list[object] = [
        [name, json.dumps({"code": code}), is_key, str(ordinal)]
        for ordinal, (name, code, is_key) in enumerate(columns_of(columns), start=1)
    ]
    return [
        to_rfc3339(FIRST_COMMIT_MICROS + number // of * 977),
        f"{number % of:08}",
        str(number // of),
        number % of == of - 1,
        "accounts",
        types,
        [
            [
                json.dumps({"account_id": str(chance.randrange(100_000))}),
                json.dumps(row_values(columns, chance)),
                json.dumps(row_values(columns, chance)),
            ]
        ],
        "UPDATE",
        "NEW_ROW_AND_OLD_VALUES",
        str(of),
        "1",
        "",
        False,
    ]


def row_values(columns: int, chance: random.Random) -> dict[str, str]:
    """Return the values of a row as Spanner writes them into a mod."""
    make: dict[str, Callable[[], str]] = {
        "INT64": lambda: str(chance.randrange(-(10**6), 10**6)),
        "STRING": lambda: f"owner {chance.randrange(10**12):012d} of the bank",
        "NUMERIC": lambda: f"{chance.randrange(10**9)}.25",
        "DATE": lambda: f"20{chance.randrange(10, 26)}-0{chance.randrange(1, 10)}-11",
        "TIMESTAMP": lambda: to_rfc3339(FIRST_COMMIT_MICROS + chance.randrange(10**12)),
    }
    return {name: make[code]() for name, code, is_key in columns_of(columns) if not is_key}


def answer(
    records: int, columns: int, records_per_message: int, seed: int, records_per_transaction: int = 1
) -> Iterator[bytes]:
    """Yield the serialised messages of one answer; every record is its own row."""
    chance = random.Random(seed)  # noqa: S311  a benchmark's input, not a secret
    for begin in range(0, records, records_per_message):
        message = PartialResultSet(resume_token=b"token")
        if begin == 0:
            message.metadata.row_type = change_record_type()
        rows = range(begin, min(begin + records_per_message, records))
        PartialResultSet.pb(message).values.extend(
            to_value([[[data_change_record(number, columns, chance, records_per_transaction)], [], []]])
            for number in rows
        )
        yield PartialResultSet.serialize(message)
