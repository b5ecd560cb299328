"""The replication slot of the engine's source, and whether the server still has what the spool has."""

import time
from collections.abc import Iterable
from typing import Any, Final

from cdc_platform.errors import SettingError, SlotInUse, SlotOutrun
from cdc_platform.sources.debezium.engine.source_connection import connect, first_row
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput

SLOT_FREE_WITHIN_S: Final = 5.0
"""Time in which the server notices that an engine was killed."""
_IS_BEHIND: Final = """
    SELECT 1 FROM pg_replication_slots WHERE slot_name = ? AND confirmed_flush_lsn < ?::pg_lsn
"""
_ENDS_BEFORE: Final = """
    SELECT 1 WHERE ?::pg_lsn >
        CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END
"""
_ENDS_COMMIT: Final = """
    SELECT 1 FROM pg_logical_slot_peek_binary_changes(?, ?::pg_lsn, NULL,
        'proto_version', '1', 'messages', 'true', 'publication_names', quote_ident(?)) WHERE lsn = ?::pg_lsn
"""


def check_slot(connection: Any, settings: EngineInput) -> int | None:
    """Check that the slot belongs to this engine and is free; the engine creates a missing one."""
    query = (
        "SELECT plugin, database, active, wal_status, restart_lsn - '0/0' "
        "FROM pg_replication_slots WHERE slot_name = ?"
    )
    deadline = time.monotonic() + SLOT_FREE_WITHIN_S
    while (slot := first_row(connection, query, settings.slot)) is not None:
        plugin, database, is_active, wal_status, restart_lsn = slot
        if (plugin, database) != ("pgoutput", settings.database):
            raise SettingError(
                "input.engine.slot",
                f"names a slot of something else, of the plugin `{plugin}` and the database `{database}`: "
                f"choose another name. Source: {settings.database_text()}",
            )
        if wal_status == "lost":
            raise SlotOutrun(
                "The slot has lost changes: the server has removed log that it needed "
                "(`max_slot_wal_keep_size`). Drop the slot, and set `snapshot` to `when_needed`, which reads "
                "all rows again, or begin with a new spool and a new lake. "
                f"Source: {settings.database_text()}"
            )
        if is_active != "t":
            return int(restart_lsn) if restart_lsn is not None else None
        if time.monotonic() > deadline:
            raise SlotInUse(
                "Another engine or connector reads the slot: stop it, or choose another `slot` with its own "
                f"spool. Source: {settings.database_text()}"
            )
        time.sleep(0.2)
    return None


def check_commits(settings: EngineInput, commits: Iterable[int]) -> None:
    """Check that the server has the commits up to which the spool is complete, by their positions.

    The slot of a restored database is at an earlier position, and the connector would skip what is committed
    between that and the spool's. After a crash of the server it is, too, but then the commits come again.

    Raises:
        SlotOutrun: it lacks one.
        SourceError: the server cannot be reached, or rejects the query.
    """
    with connect(settings) as connection:
        for commit in commits:
            if not _has_commit(connection, settings, commit):
                raise SlotOutrun(
                    f"The server's log lacks the commit at {_lsn_text(commit)}, up to which the spool is "
                    "complete: the database was restored from an older copy, or another server without its "
                    "newest changes took over. Begin with a new spool and a new lake. "
                    f"Source: {settings.database_text()}"
                )


def _has_commit(connection: Any, settings: EngineInput, commit: int) -> bool:
    lsn = _lsn_text(commit)
    if first_row(connection, _ENDS_BEFORE, lsn) is not None:
        return False
    # A former start may have stepped back by a byte, to within the commit.
    if first_row(connection, _IS_BEHIND, settings.slot, _lsn_text(commit - 1)) is None:
        return True
    return first_row(connection, _ENDS_COMMIT, settings.slot, lsn, settings.publication, lsn) is not None


def _lsn_text(position: int) -> str:
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
