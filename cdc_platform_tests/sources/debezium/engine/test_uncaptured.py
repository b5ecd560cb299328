"""Tables, columns and rows that the embedded engine leaves out, since no change of them would arrive."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.errors import ReplicationRefused
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform_tests.servers.postgresql import Cluster
from cdc_platform_tests.sources.debezium.spooled import WITHIN_S, capture_until_caught_up, events_in
from cdc_platform_tests.support.debezium.databases import database, play, settings_for

pytestmark = pytest.mark.integration


def rows_of(spool: Path) -> list[tuple[str, str, Any]]:
    """Return operation, table and row of the snapshots and changes in a spool, sorted."""
    values = [event["value"] or {} for event in events_in(Spool(spool))]
    rows = [(value["op"], value["source"]["table"], value["after"]) for value in values if "after" in value]
    return sorted(rows, key=str)


def created(*tables: str) -> Sequence[str]:
    """Return statements that create tables, given as name and columns, with the first row of each."""
    statements = []
    for table in tables:
        name, columns = table.split(": ")
        kind, name = ("UNLOGGED", name.removeprefix("unlogged ")) if "unlogged" in name else ("", name)
        statements += [f"CREATE {kind} TABLE {name} (id int PRIMARY KEY{columns})"]
        statements += [f"INSERT INTO {name} (id) VALUES (1)"]
    return statements


def test_unlogged_tables_are_left_out(capturing: Cluster, tmp_path: Path) -> None:
    """The server publishes none; tables and columns whose names differ in case, or have a comma, stay."""
    settings = settings_for(capturing, "unlogged", tmp_path, **{"publication.autocreate.mode": "filtered"})
    twice = ", twice int GENERATED ALWAYS AS (id * 2) STORED"
    with database(capturing, "unlogged") as name:
        tables = ("unlogged u: ", '"U": , twice int DEFAULT 7', f"t: {twice}", '"T": , twice int', '"a, b": ')
        play(capturing, name, created(*tables))
        capture_until_caught_up(settings, WITHIN_S)
        upper = [("r", "T", {"id": 1, "twice": None}), ("r", "U", {"id": 1, "twice": 7})]
        expected = [*upper, ("r", "a, b", {"id": 1}), ("r", "t", {"id": 1})]
        assert rows_of(tmp_path) == expected
        play(capturing, name, created("unlogged v: ", "w: "))
        capture_until_caught_up(replace(settings, tables=("public[.]u", " public[.][vw] ")), WITHIN_S)
        assert rows_of(tmp_path) == [*expected, ("r", "w", {"id": 1})]


def test_a_publication_leaves_columns_out_but_no_rows(capturing: Cluster, tmp_path: Path) -> None:
    """A column that it lacks would stay as a snapshot has read it; a condition is refused with a reason."""
    settings = settings_for(capturing, "lists", tmp_path, **{"publication.autocreate.mode": "disabled"})
    with database(capturing, "lists") as name:
        play(capturing, name, created("t: , a int, b int", "u: "))
        play(capturing, name, [f"CREATE PUBLICATION {settings.publication} FOR TABLE t (id, a), u"])
        capture_until_caught_up(settings, WITHIN_S)
        play(capturing, name, ["UPDATE t SET a = 2, b = 2"])
        capture_until_caught_up(settings, WITHIN_S)
        read = [("r", "t", {"id": 1, "a": None}), ("r", "u", {"id": 1})]
        assert rows_of(tmp_path) == [*read, ("u", "t", {"id": 1, "a": 2})]
        condition = f"ALTER PUBLICATION {settings.publication} SET TABLE t, u WHERE (id > 100)"
        play(capturing, name, [condition])
        with pytest.raises(ReplicationRefused, match=r"only the rows of `public\.u` that meet a condition"):
            capture_until_caught_up(settings, WITHIN_S)
        capture_until_caught_up(replace(settings, tables=("public[.]t",)), WITHIN_S)


def test_a_publication_sends_all_operations(capturing: Cluster, tmp_path: Path) -> None:
    """Without deletes, rows would stay that the source no longer has, unless the settings ask for that."""
    mode = {"publication.autocreate.mode": "disabled"}
    settings = settings_for(capturing, "operations", tmp_path, **mode)
    inserts = f"CREATE PUBLICATION {settings.publication} FOR TABLE t WITH (publish = 'insert, update')"
    with database(capturing, "operations") as name:
        play(capturing, name, [*created("t: "), inserts])
        with pytest.raises(ReplicationRefused, match=r"\(delete, truncate\).* to `d,t`"):
            capture_until_caught_up(settings, WITHIN_S)
        chosen = mode | {"skipped.operations": "d, t"}
        capture_until_caught_up(replace(settings, properties=chosen), WITHIN_S)
    assert rows_of(tmp_path) == [("r", "t", {"id": 1})]


def test_rows_of_a_table_that_inherits_are_its_own(capturing: Cluster, tmp_path: Path) -> None:
    """Their changes have its name, so a snapshot reads them with it alone, also one of new tables."""
    prefix = "snapshot.select.statement.overrides"
    own = {prefix: "public.chosen", f"{prefix}.public.chosen": "SELECT 5 AS id"}
    settings = settings_for(capturing, "heirs", tmp_path, **own)
    with database(capturing, "heirs") as name:
        play(capturing, name, created('"Old": ', "chosen: "))
        play(capturing, name, ['CREATE TABLE heir (n int) INHERITS ("Old", chosen)'])
        play(capturing, name, ["ALTER TABLE heir ADD PRIMARY KEY (id)", "INSERT INTO heir VALUES (2)"])
        capture_until_caught_up(settings, WITHIN_S)
        heir = ("r", "heir", {"id": 2, "n": None})
        expected = [("r", "Old", {"id": 1}), ("r", "chosen", {"id": 5}), heir]
        assert rows_of(tmp_path) == expected
        play(capturing, name, [*created("late: "), "CREATE TABLE later (PRIMARY KEY (id)) INHERITS (late)"])
        play(capturing, name, ["INSERT INTO later VALUES (3)"])
        capture_until_caught_up(settings, WITHIN_S)
        new = sorted(
            [
                *expected,
                *((op, "late", {"id": 1}) for op in "cr"),
                *((op, "later", {"id": 3}) for op in "cr"),
            ],
            key=str,
        )
        assert new == rows_of(tmp_path)


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        (
            ['CREATE TABLE "p/q" (id int PRIMARY KEY)', 'CREATE TABLE h () INHERITS ("p/q")'],
            "inherit `public.p/q`",
        ),
        (
            [
                "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
                "CREATE UNLOGGED TABLE part PARTITION OF t DEFAULT",
            ],
            "`public.part` of `public.t` is unlogged",
        ),
    ],
)
def test_what_can_neither_be_captured_nor_left_out_is_refused(
    capturing: Cluster, tmp_path: Path, tables: Sequence[str], reason: str
) -> None:
    """Rows would stay as a snapshot has read them; without such a table the engine works."""
    settings = settings_for(capturing, "refused", tmp_path)
    with database(capturing, "refused") as name:
        play(capturing, name, [*tables, *created("u: ")])
        with pytest.raises(ReplicationRefused, match=reason):
            capture_until_caught_up(settings, WITHIN_S)
        capture_until_caught_up(replace(settings, tables=("public[.]u",)), WITHIN_S)
        assert rows_of(tmp_path) == [("r", "u", {"id": 1})]
