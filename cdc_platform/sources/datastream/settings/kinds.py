"""The kind of an event's source database, and whether a backfill read the event."""

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from cdc_platform.errors import RecordUnreadable


class SourceKind(StrEnum):
    """The sources of Datastream that this version supports."""

    MYSQL = "mysql"
    """Positions are a binary log file and the offset in it."""
    ORACLE = "oracle"
    """Positions are a system change number, a record of the redo log and a row of the statement."""
    POSTGRESQL = "postgresql"
    """Positions are log sequence numbers of the write-ahead log."""
    SQLSERVER = "sqlserver"
    """Positions are log sequence numbers with three parts."""
    SALESFORCE = "salesforce"
    """There are no positions, but no record changes twice within a second."""
    MONGODB = "mongodb"
    """Positions are cluster times: a second and an ordinal in it."""


DOCUMENT_ID: Final = "_id"
"""Key of MongoDB's documents."""
LOG_PLACES: Final = "____ 1 %"
"""Pattern of SQL for the ordering keys of captured changes, whose positions in a log order them."""
SOURCE_KINDS: Final = tuple(kind.value for kind in SourceKind)

_PREFIXES: Final[Mapping[str, SourceKind]] = {
    **{kind.value: kind for kind in SourceKind},
    "postgres": SourceKind.POSTGRESQL,
    "mongo": SourceKind.MONGODB,
}
_BARE: Final = frozenset({"cdc", "backfill"})
"""Read methods of MongoDB, which have no prefix."""
_MARKS: Final[Mapping[str, SourceKind]] = {
    # Fields of source_metadata that only one source has.
    "collection": SourceKind.MONGODB,
    "rs_id": SourceKind.ORACLE,
    "scn": SourceKind.ORACLE,
    "row_id": SourceKind.ORACLE,
    "log_position": SourceKind.MYSQL,
    "binlog_position": SourceKind.MYSQL,
    "binlog_file": SourceKind.MYSQL,
    "physical_location": SourceKind.SQLSERVER,
    "replication_index": SourceKind.SQLSERVER,
    "domain": SourceKind.SALESFORCE,
    "object_name": SourceKind.SALESFORCE,
}
_LSN_MARKS: Final[Mapping[str, SourceKind]] = {"/": SourceKind.POSTGRESQL, ":": SourceKind.SQLSERVER}


def source_kind(read_method: str, metadata: Mapping[str, Any], declaration: str | None = None) -> SourceKind:
    """Return the kind of source of an event: the declared one, else by its read method, else by its metadata.

    Args:
        read_method: read method of the event, such as `mysql-cdc-binlog`; for MongoDB, `cdc` or `backfill`.
        metadata: the event's `source_metadata`, whose fields differ per source.
        declaration: the setting `source`, which takes precedence.

    Raises:
        RecordUnreadable: none of these identifies the source; there is no default.
    """
    if declaration is not None:
        return SourceKind(declaration)
    by_prefix, is_bare = _by_method(read_method)
    kind = by_prefix or _by_shape(metadata) or (SourceKind.MONGODB if is_bare else None)
    if kind is None:
        raise RecordUnreadable(
            f"Neither the read method nor `source_metadata` identifies the source; set `source` to one of "
            f"{', '.join(SOURCE_KINDS)}. Read method: {read_method!r}"
        )
    return kind


@lru_cache(maxsize=256)
def _by_method(read_method: str) -> tuple[SourceKind | None, bool]:
    """Return the source of a read method's prefix, and whether the method is one without a prefix."""
    method = read_method.lower().replace("_", "-")
    return _PREFIXES.get(method.partition("-")[0]), method in _BARE


@lru_cache(maxsize=256)
def is_backfill(read_method: str) -> bool:
    """Return whether a backfill read the row; file names do not show it."""
    method = read_method.lower()
    return "backfill" in method or "dump" in method


def _by_shape(metadata: Mapping[str, Any]) -> SourceKind | None:
    for field, kind in _MARKS.items():
        if field in metadata:
            return kind
    return kind_of_lsn(metadata.get("lsn"))


def kind_of_lsn(lsn: object) -> SourceKind | None:
    """Return the source that writes log sequence numbers in this form; None for other values."""
    text = str(lsn or "")
    return next((kind for mark, kind in _LSN_MARKS.items() if mark in text), None)
