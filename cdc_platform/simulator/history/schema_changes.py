"""Schema changes of the simulator and their times: listed ones, and recurring ones."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Final

from cdc_platform.errors import SettingError
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.simulator.wire.simulator_settings import SchemaChange, SchemaChangeKind, SimulatorSettings

ALL: Final = "ALL"
"""Follows `FOR` if a change stream watches every table, including later ones."""

_CAPTURES: Final = tuple(item for item in ValueCaptureType if item is not ValueCaptureType.UNKNOWN)
_TABLE: Final = re.compile(r"""\s*[`"]?(?P<name>\w+)[`"]?\s*(?:\((?P<columns>[^()]*)\))?\s*(?:,|$)""")


def all_changes(
    settings: SimulatorSettings, table: str, column: str, tables: Mapping[str, Sequence[str]]
) -> Iterator[SchemaChange]:
    """Yield the changes in the order of their times.

    Args:
        settings: settings with listed changes, and with the interval of recurring ones.
        table: table whose columns are added and dropped.
        column: column of this table that is retyped, and temporarily not watched.
        tables: the columns outside the key of all initial tables.
    """
    changes = sorted(settings.schema_changes, key=lambda change: change.at_s)
    if settings.schema_change_every_s is None:
        yield from changes
        return
    for number, change in enumerate(_endless_changes(table, column, tables), start=1):
        at_s = number * settings.schema_change_every_s
        while changes and changes[0].at_s <= at_s:
            yield changes.pop(0)
        yield SchemaChange(at_s, *change)


def _endless_changes(
    table: str, column: str, tables: Mapping[str, Sequence[str]]
) -> Iterator[tuple[SchemaChangeKind, str, str, str]]:
    """Yield every kind of change, in turn and forever; each round leaves one more table."""
    clauses = dict.fromkeys(tables, "")
    for lap in count():
        memo, audit = f"memo_{lap + 1}", f"audit_{lap + 1}"
        code = ("BYTES(MAX)", "STRING(MAX)")[lap % 2]
        partly = ", ".join([*(name for name in tables[table] if name != column), memo])
        yield SchemaChangeKind.ADD_COLUMN, table, memo, "STRING(MAX)"
        yield SchemaChangeKind.SET_CAPTURE, "", "", _CAPTURES[lap % len(_CAPTURES)]
        yield SchemaChangeKind.SET_WATCHED, "", "", _clause({**clauses, table: f"({partly})"})
        yield SchemaChangeKind.RETYPE_COLUMN, table, column, code
        yield SchemaChangeKind.SET_WATCHED, "", "", ALL
        yield SchemaChangeKind.ADD_TABLE, audit, "", ""
        yield SchemaChangeKind.SET_WATCHED, "", "", _clause(clauses)
        yield SchemaChangeKind.DROP_COLUMN, table, memo, ""
        yield SchemaChangeKind.SET_WATCHED, "", "", ALL
        clauses[audit] = ""


def _clause(tables: Mapping[str, str]) -> str:
    return ", ".join(f"{name}{columns}" for name, columns in tables.items())


def parse_watched(text: str) -> dict[str, frozenset[str] | None] | None:
    """Return the tables that follow `FOR`, each with the columns that it names, or None.

    Returns:
        None for all tables.

    Raises:
        SettingError: the text is invalid.
    """
    if text.strip().upper() == ALL:
        return None
    watched_columns: dict[str, frozenset[str] | None] = {}
    end = 0
    while text[end:].strip():
        match = _TABLE.match(text, end)
        if match is None:
            raise SettingError("schema_changes", f"has invalid text after FOR in a change stream: {text!r}")
        names = match["columns"]
        columns = None if names is None else frozenset(re.findall(r"\w+", names))
        watched_columns[match["name"]], end = columns, match.end()
    return watched_columns
