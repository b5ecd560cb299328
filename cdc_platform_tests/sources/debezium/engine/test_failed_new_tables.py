"""Rows of new tables that the embedded engine cannot read, and waits that end because nothing arrives."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_platform.errors import CaptureStopped
from cdc_platform.sources.debezium.engine.batches import is_progress
from cdc_platform.sources.debezium.engine.new_tables import NewTables
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform.sources.debezium.settings.engine_settings import MARKER_PREFIX, EngineInput
from cdc_platform_tests.servers.postgresql import Cluster
from cdc_platform_tests.sources.debezium.spooled import WITHIN_S, capture_until_caught_up, rows_in
from cdc_platform_tests.support.debezium.databases import database, play, settings_for

ROLE = "reader_of_some_tables"
ENGINE = EngineInput(spool="s", host="h", database="d", user="u")


@pytest.mark.integration
def test_new_tables_that_may_not_be_read_end_the_engine(capturing: Cluster, tmp_path: Path) -> None:
    """The error names the table and the grant; once it is given, the next start reads the rows."""
    settings = settings_for(capturing, "ungranted", tmp_path, **{"publication.autocreate.mode": "disabled"})
    settings, spool = replace(settings, user=ROLE, password="x"), Spool(tmp_path)  # noqa: S106  no real one
    with database(capturing, "ungranted") as name:
        play(capturing, name, ["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)"])
        play(capturing, name, [f"CREATE ROLE {ROLE} LOGIN REPLICATION", f"GRANT SELECT ON t TO {ROLE}"])
        play(capturing, name, [f"CREATE PUBLICATION {settings.publication} FOR TABLE t"])
        capture_until_caught_up(settings, WITHIN_S)
        play(capturing, name, ["CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (2)"])
        play(capturing, name, [f"ALTER PUBLICATION {settings.publication} ADD TABLE u"])
        with pytest.raises(CaptureStopped, match=r"`public\.u` \(SQL_EXCEPTION\)\. Grant .* SELECT"):
            capture_until_caught_up(settings, WITHIN_S)
        play(capturing, name, [f"GRANT SELECT ON u TO {ROLE}", "INSERT INTO t VALUES (3)"])
        capture_until_caught_up(settings, WITHIN_S)
        play(capturing, name, [f"DROP OWNED BY {ROLE}", f"DROP ROLE {ROLE}"])
    assert sorted(rows_in(spool)) == [("c", 3, None), ("r", 1, None), ("r", 2, None)]


@pytest.mark.parametrize(
    ("topic", "key", "expected"),
    [
        ("cdc.public.t", {"id": 1}, True),
        ("cdc.public.transaction", {"id": 1}, True),
        ("cdc.message", {"prefix": "of the user"}, True),
        ("cdc.notifications", None, True),
        ("cdc.message", {"payload": {"prefix": f"{MARKER_PREFIX}.1"}}, False),
        ("cdc.transaction", {"id": "7"}, False),
    ],
)
def test_markers_do_not_extend_a_wait(topic: str, key: object, expected: bool) -> None:
    """The engine writes them itself, and all the while."""
    assert expected is is_progress(json.dumps({"topic": topic, "key": key}), "cdc")


@pytest.mark.parametrize(
    ("kind", "names"), [("Incremental Snapshot", ["public.t"]), ("Initial Snapshot", [])]
)
def test_only_a_blocking_snapshot_ends_the_wait(tmp_path: Path, kind: str, names: list[str]) -> None:
    """A user's incremental snapshot that ends meanwhile has read other rows."""
    spool = Spool(tmp_path)
    spool.tables.write_text("{}")
    new_tables = NewTables(spool, ENGINE, {"public.t": "1"}, {})
    new_tables.signal()
    new_tables.follow(json.dumps({"aggregate_type": kind, "type": "COMPLETED"}))
    new_tables.finish()
    assert names == new_tables.names


def test_a_signal_of_an_earlier_start_is_removed(tmp_path: Path) -> None:
    """The end of its snapshot would count as that of the tables that are new now."""
    spool = Spool(tmp_path)
    spool.signals.write_text("{}")
    NewTables(spool, ENGINE, {}, {})
    assert not spool.signals.exists()


def test_a_spool_of_a_version_without_a_list_of_tables_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing shows which tables were added since its first start; a new spool has nothing to report."""
    spool = Spool(tmp_path)
    NewTables(spool, ENGINE, {}, {})
    assert caplog.messages == []
    spool.tables.unlink()
    with spool.open_writer(ENGINE.identity()) as writer:
        writer.write([""], 0)
    NewTables(spool, ENGINE, {"public.t": "1"}, {})
    assert list(json.loads(spool.tables.read_text())) == ["public.t"]
    (message,) = caplog.messages
    assert "take a snapshot" in message
