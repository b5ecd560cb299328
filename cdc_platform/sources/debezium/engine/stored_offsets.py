"""The position from which the connector resumes, in the engine's file of offsets."""

import json
from typing import Any, Final

from cdc_platform.private_files import write_whole
from cdc_platform.sources.debezium.engine.spool import Spool

COMMIT: Final = "lsn_commit"
"""Member of the connector's offsets: the end of the last commit."""
PROCESSED: Final = "lsn_proc"
"""Member of the connector's offsets: the position of the record that was processed last."""


def prepare_offsets(spool: Spool, restart_lsn: int | None) -> None:
    """Let the connector resume with all transactions that are not in the spool as a whole.

    Offsets that the engine was writing when it was killed are replaced with their copy.

    The engine acknowledges the ends of commits. Such a position is also that of the next record of the log.
    If that is a change of a transaction that was open then, Debezium's `WalPositionLocator` takes it for the
    change that was processed last, and skips its transaction up to there. No record begins a byte earlier, so
    from there the transaction comes as a whole.

    Args:
        spool: its writer has been opened.
        restart_lsn: the oldest position that the slot may still need; None without a slot. It is before the
            acknowledged one if a transaction was open there; otherwise the server has nothing before it.
    """
    import jpype

    offsets = _load(spool)
    if offsets is None or restart_lsn is None:
        return
    for entry in offsets.entrySet():
        members = json.loads(bytes(entry.getValue()))
        commit, processed_position = members.get(COMMIT), members.get(PROCESSED)
        # A former start may have stepped back, and the connector repeats the position until the next commit.
        if commit is not None and processed_position in {commit - 1, commit}:
            members[PROCESSED] = commit - 1 if restart_lsn < commit else commit
            entry.setValue(jpype.JArray(jpype.JByte)(json.dumps(members).encode()))
    _store(spool, offsets)


def stored_commits(spool: Spool) -> list[int]:
    """Return the positions of the commits up to which the spool is complete, from the offsets."""
    offsets = _load(spool)
    entries = [] if offsets is None else [json.loads(bytes(value)) for value in offsets.values()]
    return [entry[COMMIT] for entry in entries if entry.get(COMMIT) is not None]


def _load(spool: Spool) -> Any:
    """Return Java's map of the offsets; None before there are any."""
    import jpype

    if spool.offsets_copy.exists():
        try:
            return _read(spool)
        except jpype.JException:
            write_whole(spool.offsets, spool.offsets_copy.read_bytes())
    return _read(spool) if spool.offsets.exists() else None


def _read(spool: Spool) -> Any:
    import jpype

    with jpype.JClass("java.io.FileInputStream")(str(spool.offsets)) as file:
        return jpype.JClass("java.io.ObjectInputStream")(file).readObject()


def _store(spool: Spool, offsets: Any) -> None:
    import jpype

    content = jpype.JClass("java.io.ByteArrayOutputStream")()
    with jpype.JClass("java.io.ObjectOutputStream")(content) as writer:
        writer.writeObject(offsets)
    write_whole(spool.offsets, bytes(content.toByteArray()))
