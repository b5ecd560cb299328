"""Safe, short and quoted names; every identifier in SQL text passes through this module."""

import re
from collections.abc import Collection, Iterable
from hashlib import sha256
from typing import Final

from cdc_platform.errors import SettingError
from cdc_platform.model.base.timestamps import to_datetime

ROOT_TOKEN: Final = ""
"""Token of the first query of every stream, which is sent without one."""
ROOT_KEY: Final = "root"
"""Partition key of that query."""

PLATFORM_GROUP: Final = "platform"
"""Dagster's group, within that of the pipeline, of the assets that are not the user's tables."""
FRESH: Final = "fresh"
"""Name of the check of a table's freshness: checks/freshness.py."""
STREAM_IS_RUNNING: Final = "stream_is_running"
"""Name of the check of a Datastream stream's own state: checks/stream_state.py."""
DAGSTER_CHECKS: Final = (FRESH, STREAM_IS_RUNNING)
"""Checks that only Dagster runs."""
CHECKED_AT: Final = "Checked at"
"""Metadata with the time of a check, in a result that a later run repeats."""

RESERVED_COLUMNS: Final = frozenset(
    {
        # Iceberg's own columns of every table: a column of the same name cannot be created or read.
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
        # Columns that the lake adds to tables.
        *("__deleted", "__deleted_at", "__ordering_key", "__copy"),
        # Columns that processing adds to changes, net changes and histories.
        *("__kind", "__ordinal", "__key_text", "__row", "__committed", "__transaction"),
        *("__action", "__newest", "__inserted", "__row_event", "__more", "__is_back", "__back", "__unseen"),
        *(
            "__closed_at",
            "__gone",
            "__epoch",
            "__since",
            "__moment",
            "__is_read",
            "__is_last",
            "__oldest",
            "__ended",
        ),
    }
)
"""Names, in lower case, that no column of a source table can have in the lake."""
FLAG_PREFIX: Final = "__names_"
"""Prefix of the flags that state which columns a change names."""

ELEMENT_SUFFIX: Final = ".element"
"""Suffix of Iceberg's name for the elements of an array; no column of the table can have the same name."""

KEY_PREFIX: Final = "__key_"
"""Prefix of the columns of a key in frames that also have the table's own columns."""

MAX_COLUMN_CHARACTERS: Final = 255
"""Maximum number of characters of a column's name: the limit of catalogs such as Glue and engines such as
Snowflake. No known source has more than 128; Spark reads JSON with names of up to 50,000 characters."""
MAX_COLUMNS: Final = 4_096
"""Maximum number of columns of an event: no known source has more, and each new one costs 30 ms."""
MAX_TABLE_CHARACTERS: Final = 1_000
"""Maximum number of characters of a table's name at the source; the lake's name is shorter."""

_MAX_CHARACTERS: Final = 200
_SHOWN_CHARACTERS: Final = 40
_IDENTIFIER: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_UNSAFE_KEY: Final = re.compile(r"[^A-Za-z0-9_.-]")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_]")


def partition_key(token: str, start_micros: int) -> str:
    """Return a short name of a partition that sorts by its start, such as `20261121T054520Z-1a2b3c4d`."""
    if token == ROOT_TOKEN:
        return ROOT_KEY
    return f"{to_datetime(start_micros):%Y%m%dT%H%M%SZ}-{_digest(token, 8)}"


def readable_key(name: str) -> str:
    """Return the name of a named partition, such as a folder, in a form that Dagster accepts."""
    safe = _UNSAFE_KEY.sub("_", name)
    return safe if safe == name else f"{safe}-{_digest(name, 6)}"


def check_identifier(name: str) -> str:
    """Return a setting `name` if it can name a pipeline and its namespace.

    Raises:
        SettingError: The name is not valid.
    """
    if _IDENTIFIER.fullmatch(name) is None:
        raise SettingError(
            "name",
            "must begin with a lower-case letter and continue with at most 62 lower-case letters, digits or "
            f"underscores; choose another name than: {name!r}",
        )
    return name


def lake_table_name(source_table: str) -> str:
    """Return the name of the lake's table: the source's own, or a safe one that no other source table gets.

    A name with characters other than letters, digits and underscores, or one that is too long for a folder,
    gets a digest of itself.
    """
    safe = _UNSAFE.sub("_", source_table)
    if safe == source_table and len(safe) <= _MAX_CHARACTERS:
        return safe
    digest = _digest(source_table, 6)
    return f"{safe[: _MAX_CHARACTERS - len(digest) - 1]}_{digest}"


def find_table(name: str, source_tables: Iterable[str]) -> str | None:
    """Return the source table that has a name, at the source or in the lake; None without one."""
    tables = tuple(source_tables)
    in_lake = (table for table in tables if lake_table_name(table) == name)
    return name if name in tables else next(in_lake, None)


def is_reserved_column(name: str) -> bool:
    """Return whether a name is reserved in the lake, which ignores case."""
    key = case_key(name)
    return (
        not name
        or key in RESERVED_COLUMNS
        or key.startswith((FLAG_PREFIX, KEY_PREFIX))
        or key.endswith(ELEMENT_SUFFIX)
    )


def unfit_columns_reason(names: Collection[str]) -> str | None:
    """Return why a table cannot have columns of these names: too many, or one too long; None if it can."""
    if len(names) > MAX_COLUMNS:
        return (
            f"The event has {len(names)} columns, but the limit is {MAX_COLUMNS}: "
            "leave some of them out at the source"
        )
    return long_column_reason(names)


def long_column_reason(names: Collection[str]) -> str | None:
    """Return the reason why a table cannot have columns of these names if one is too long, else None."""
    long_names = (name for name in names if len(name) > MAX_COLUMN_CHARACTERS)
    return next((_long("column", name, MAX_COLUMN_CHARACTERS) for name in long_names), None)


def long_table_reason(name: str) -> str | None:
    """Return the reason why there can be no table of this name if it is too long, else None."""
    return _long("table", name, MAX_TABLE_CHARACTERS) if len(name) > MAX_TABLE_CHARACTERS else None


def _long(what: str, name: str, limit: int) -> str:
    return (
        f"The name of a {what} has {len(name)} characters, but the limit is {limit}: "
        f"`{name[:_SHOWN_CHARACTERS]}...`. Shorten it at the source, or leave the {what} out there"
    )


def case_key(name: str) -> str:
    """Return a key that all names of one column in Spark share, such as `s`, `S` and U+017F.

    In some places, Spark compares names character by character by their capitals (Java's
    `String.equalsIgnoreCase`), and in others, whole names in lower case (`toLowerCase(Locale.ROOT)`).
    """
    return name.lower() if name.isascii() else "".join(map(_case_key, name)).replace("i\u0307", "i")


def _case_key(character: str) -> str:
    capital = character.upper()
    # In Java, a character has at most one capital: `ß` has none.
    return (capital if len(capital) == 1 else character).lower()[0]


def quote_spanner(identifier: str) -> str:
    """Return the identifier quoted for GoogleSQL; a name in a named schema is quoted part by part."""
    escaped_name = identifier.replace("\\", "\\\\").replace("`", "\\`").replace("\n", "\\n")
    return ".".join(f"`{part}`" for part in escaped_name.split("."))


def quote_postgresql(identifier: str) -> str:
    """Return the identifier quoted for PostgreSQL; a name in a named schema is quoted part by part."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in identifier.split("."))


def quote_spark(*parts: str) -> str:
    """Return the parts as one quoted name in Spark's SQL, such as `lake`.`bank`.`accounts`."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def quote_text(text: str) -> str:
    """Return a text as a literal of Spark's SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _digest(text: str, digits: int) -> str:
    return sha256(text.encode()).hexdigest()[:digits]
