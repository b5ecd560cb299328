"""The embedded engine on a server that was restored, or that has crashed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from cdc_platform.errors import SlotOutrun
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput, Snapshot
from cdc_platform_tests.servers.postgresql import LOGICAL, Cluster, cluster, run
from cdc_platform_tests.sources.debezium.spooled import WITHIN_S, capture_until_caught_up, rows_in
from cdc_platform_tests.support.debezium.databases import play, settings_for

pytestmark = pytest.mark.integration

DATABASE: Final = "shop"
MANY_ROWS: Final = "INSERT INTO t SELECT i, repeat(md5(i::text), 9) FROM generate_series(10, {}) i"


@contextmanager
def captured(capturing: Cluster, spool: Path) -> Iterator[tuple[Cluster, EngineInput]]:
    """Run a server whose table of one row is in a spool."""
    # Another user runs it, who cannot look into the folders of a test.
    with TemporaryDirectory() as own, cluster(capturing.programs, Path(own) / "c", None, LOGICAL) as server:
        play(server, "postgres", [f"CREATE DATABASE {DATABASE}"])
        settings = settings_for(server, DATABASE, spool)
        play(server, DATABASE, ["CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1)"])
        capture_until_caught_up(settings, WITHIN_S)
        yield server, settings


@pytest.mark.parametrize(("rows_since", "has_slot"), [(20, True), (4000, True), (20, False)])
def test_a_database_that_was_restored_is_refused(
    capturing: Cluster, tmp_path: Path, rows_since: int, *, has_slot: bool
) -> None:
    """The connector would skip what is committed up to the former position, which it may have passed."""
    with captured(capturing, tmp_path) as (server, settings):
        data, copy = str(server.folder / "data"), str(server.folder / "copy")
        server.stop("fast")
        run(["cp", "-a", data, copy], server.user)
        server.start(LOGICAL)
        play(server, DATABASE, [MANY_ROWS.format(2000)])
        capture_until_caught_up(settings, WITHIN_S)
        server.stop("fast")
        run(["rm", "-r", data], server.user)
        run(["mv", copy, data], server.user)
        server.start(LOGICAL)
        play(server, DATABASE, ["INSERT INTO t VALUES (2)", MANY_ROWS.format(rows_since)])
        if not has_slot:
            play(server, DATABASE, [f"SELECT pg_drop_replication_slot('{settings.slot}')"])
        snapshot = settings.snapshot if has_slot else Snapshot.WHEN_NEEDED
        with pytest.raises(SlotOutrun, match=r"restored from an older copy.* new spool and a new lake"):
            capture_until_caught_up(replace(settings, snapshot=snapshot), WITHIN_S)


def test_a_slot_that_a_crash_has_set_back_is_continued(capturing: Cluster, tmp_path: Path) -> None:
    """The server saves the positions of slots now and then only; its log has what was captured since."""
    with captured(capturing, tmp_path) as (server, settings):
        play(server, DATABASE, ["CHECKPOINT", "INSERT INTO t VALUES (2)"])
        capture_until_caught_up(settings, WITHIN_S)
        server.stop()
        server.start(LOGICAL)
        play(server, DATABASE, ["INSERT INTO t VALUES (3)"])
        capture_until_caught_up(settings, WITHIN_S)
    assert {("r", 1, None), ("c", 2, None), ("c", 3, None)} == {*rows_in(Spool(tmp_path))}
