"""Tables that are created, recreated or chosen between two starts of the embedded engine."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_platform.errors import ReplicationRefused, SettingError, SpoolUnusable
from cdc_platform.model.base.stored_names import NEW_TABLES_RUN
from cdc_platform.sources.debezium.engine.engine_process import EngineProcess
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput, Snapshot
from cdc_platform.sources.debezium.wire.plain_lines import RUN_ID
from cdc_platform_tests.servers.postgresql import Cluster
from cdc_platform_tests.sources.debezium.spooled import (
    WITHIN_S,
    capture_until_caught_up,
    events_in,
    wait_until,
)
from cdc_platform_tests.support.debezium.databases import database, play, settings_for

pytestmark = pytest.mark.integration

FILTERED = {"publication.autocreate.mode": "filtered"}
"""The default: a publication of the tables that exist."""


def rows_after(spool: Spool, count: int) -> list[tuple[str, str, int]]:
    """Return operation, table and key of the changes of rows after a number of events."""
    values = [event["value"] for event in events_in(spool)[count:] if event["value"] is not None]
    return [
        (value["op"], value["source"]["table"], (value["after"] or value["before"])["id"])
        for value in values
        if value.get("op") in {"r", "c", "u", "d"}
    ]


def settings_of(server: Cluster, name: str, spool: Path) -> EngineInput:
    """Return the settings of an engine with a publication of the tables that exist."""
    return settings_for(server, name, spool, **FILTERED)


def test_the_rows_of_new_tables_are_read(capturing: Cluster, tmp_path: Path) -> None:
    """Also those of a recreated table, and of one with an odd name; others are not read again.

    Their headers show that the snapshot is not one of all tables.
    """
    settings, spool = settings_of(capturing, "added", tmp_path), Spool(tmp_path)
    with database(capturing, "added") as name:
        play(capturing, name, ["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)"])
        play(capturing, name, ["CREATE TABLE again (id int PRIMARY KEY)", "INSERT INTO again VALUES (1)"])
        capture_until_caught_up(settings, WITHIN_S)
        count = len(events_in(spool))
        play(
            capturing,
            name,
            [
                "CREATE TABLE nothing (id int PRIMARY KEY)",
                *(
                    "DROP TABLE again",
                    "CREATE TABLE again (id int PRIMARY KEY)",
                    "INSERT INTO again VALUES (2)",
                ),
                *('CREATE SCHEMA "Ä b"', 'CREATE TABLE "Ä b"."c.d+E" (id int PRIMARY KEY)'),
                'INSERT INTO "Ä b"."c.d+E" VALUES (3)',
            ],
        )
        capture_until_caught_up(settings, WITHIN_S)
        assert sorted(rows_after(spool, count)) == [("r", "again", 2), ("r", "c.d+E", 3)]
        runs = [
            event["headers"][RUN_ID] == NEW_TABLES_RUN
            for event in events_in(spool)
            if (event["value"] or {}).get("op") == "r"
        ]
        assert runs == [False, False, True, True]
        count = len(events_in(spool))
        play(capturing, name, ["INSERT INTO nothing VALUES (4)", "UPDATE again SET id = 5"])
        capture_until_caught_up(settings, WITHIN_S)
        expected = [("c", "nothing", 4), ("d", "again", 2), ("c", "again", 5)]
        assert expected == rows_after(spool, count)


def test_the_rows_of_a_table_that_is_chosen_later_are_read(capturing: Cluster, tmp_path: Path) -> None:
    """Also again if the table was left out in between, since its changes were not captured."""
    every, spool = settings_of(capturing, "chosen", tmp_path), Spool(tmp_path)
    one = replace(every, tables=("public[.]t",))
    with database(capturing, "chosen") as name:
        play(capturing, name, ["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)"])
        play(capturing, name, ["CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (2)"])
        for settings, expected in (
            (one, [("r", "t", 1)]),
            (every, [("r", "u", 2)]),
            (one, []),
            (every, [("r", "u", 2)]),
        ):
            count = len(events_in(spool))
            capture_until_caught_up(settings, WITHIN_S)
            assert expected == rows_after(spool, count)
        capture_until_caught_up(replace(one, snapshot=Snapshot.NEVER), WITHIN_S)
        count = len(events_in(spool))
        capture_until_caught_up(replace(every, snapshot=Snapshot.NEVER), WITHIN_S)
        assert rows_after(spool, count) == []


def test_the_owner_of_a_publication_decides_what_is_read(capturing: Cluster, tmp_path: Path) -> None:
    """A table that the publication lacks is not read; it is new once its owner adds it.

    The modes of the connector that make a missing publication leave one that exists as it is. Tables that
    are not captured may be published as partitions.
    """
    mode, spool = {"publication.autocreate.mode": "no_tables"}, Spool(tmp_path)
    settings = replace(settings_for(capturing, "published", tmp_path, **mode), tables=("public[.][tu].*",))
    with database(capturing, "published") as name:
        play(capturing, name, ["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)"])
        play(capturing, name, ['CREATE TABLE "u, v" (id int PRIMARY KEY)', 'INSERT INTO "u, v" VALUES (2)'])
        play(capturing, name, ["CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)"])
        play(capturing, name, ["CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)"])
        play(capturing, name, [f"CREATE PUBLICATION {settings.publication} FOR TABLE t, p"])
        capture_until_caught_up(settings, WITHIN_S)
        assert rows_after(spool, 0) == [("r", "t", 1)]
        count = len(events_in(spool))
        play(capturing, name, [f'ALTER PUBLICATION {settings.publication} ADD TABLE "u, v"'])
        mode = {"publication.autocreate.mode": "all_tables"}
        capture_until_caught_up(replace(settings, properties=mode), WITHIN_S)
        assert rows_after(spool, count) == [("r", "u, v", 2)]


def test_a_partitioned_table_is_one_table(capturing: Cluster, tmp_path: Path) -> None:
    """The snapshot and the changes have its name, also those of a partition that is added later."""
    settings, spool = settings_of(capturing, "parted", tmp_path), Spool(tmp_path)
    with database(capturing, "parted") as name:
        ranges = ["CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)"]
        play(capturing, name, ["CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)", *ranges])
        play(capturing, name, ["INSERT INTO p VALUES (1)"])
        capture_until_caught_up(settings, WITHIN_S)
        play(capturing, name, ["CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)"])
        play(capturing, name, ["INSERT INTO p VALUES (11)", "UPDATE p SET id = 12 WHERE id = 1"])
        capture_until_caught_up(settings, WITHIN_S)
        expected = [("r", "p", 1), ("c", "p", 11), ("d", "p", 1), ("c", "p", 12)]
        assert expected == rows_after(spool, 0)
        with pytest.raises(SettingError, match=r"the partition `public\.p1`.* name `public\.p`"):
            capture_until_caught_up(replace(settings, tables=("public[.]p1",)), WITHIN_S)
        publication = f"ALTER PUBLICATION {settings.publication} SET (publish_via_partition_root = false)"
        play(capturing, name, [publication])
        with pytest.raises(ReplicationRefused, match="under their own names"):
            capture_until_caught_up(settings, WITHIN_S)


def test_generated_columns_are_left_out(capturing: Cluster, tmp_path: Path) -> None:
    """The server does not send their changes, so a value of the snapshot would stay as it was."""
    spool = Spool(tmp_path)
    settings = settings_for(capturing, "computed", tmp_path, **{"column.exclude.list": "public[.]t[.]secret"})
    with database(capturing, "computed") as name:
        columns = 'id int PRIMARY KEY, secret int, "twice, ü" int GENERATED ALWAYS AS (id * 2) STORED'
        play(capturing, name, [f"CREATE TABLE t ({columns})", "INSERT INTO t VALUES (1, 1)"])
        capture_until_caught_up(settings, WITHIN_S)
        play(capturing, name, ["INSERT INTO t VALUES (2, 2)"])
        capture_until_caught_up(settings, WITHIN_S)
    rows = [event["value"]["after"] for event in events_in(spool) if "after" in (event["value"] or {})]
    assert rows == [{"id": 1}, {"id": 2}]


def test_a_damaged_list_of_tables_is_reported(capturing: Cluster, tmp_path: Path) -> None:
    """Nothing shows which tables are new then."""
    settings, spool = settings_of(capturing, "damaged", tmp_path), Spool(tmp_path)
    spool.make_folder()
    spool.tables.write_text('{"t"')
    with database(capturing, "damaged"), pytest.raises(SpoolUnusable, match="take a snapshot of each table"):
        capture_until_caught_up(settings, WITHIN_S)


def test_an_engine_that_is_killed_before_it_has_read_new_tables_reads_them_later(
    capturing: Cluster, tmp_path: Path
) -> None:
    """The spool stores the tables only once it has their rows."""
    settings, spool = settings_of(capturing, "interrupted", tmp_path), Spool(tmp_path)
    with database(capturing, "interrupted") as name:
        play(capturing, name, ["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)"])
        capture_until_caught_up(settings, WITHIN_S)
        play(capturing, name, ["CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (2)"])
        count = len(events_in(spool))
        with EngineProcess(settings) as engine:
            # The connector empties the file, at once or later, and does not delete it.
            wait_until(spool.signals.exists, engine)
            os.kill(engine.pid, signal.SIGKILL)
        assert rows_after(spool, count) == []
        capture_until_caught_up(settings, WITHIN_S)
        assert rows_after(spool, count) == [("r", "u", 2)]
