"""Datastream's files through all steps of a cycle: late, repeated, rewritten, broken, and in any order."""

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.checks.freshness import Freshness
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import ATTEMPT, fact, head
from cdc_platform.lake.state.cuts import append_cut, list_cuts, newest_cut
from cdc_platform.lake.state.quarantine import count_quarantined_records, load_quarantine
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.base.timestamps import from_datetime, to_datetime
from cdc_platform.model.schema.table_options import DELETED, IS_CURRENT, TableOptions
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.table_checks import check_histories
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.on_demand.status import read_status
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.branch import FELL_BACK, load_table
from cdc_platform_tests.sources.datastream.generated_events import write_avro
from cdc_platform_tests.support.cycles import failed_checks, found_rows, sync
from cdc_platform_tests.support.datastream.files import ORIGIN, MadeEvent, StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline, user
from cdc_platform_tests.support.pipelines import found_table, log_rows, quarantined_rows, rows_of, state_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


KEEPS_ALL: Final = TableOptions(history=True, soft_delete=True)
Events = Iterable[Sequence[MadeEvent]]
"""The events of a table's files in one cycle."""


def newest_first() -> Iterator[Events]:
    """Yield late, repeated and backfill events of `users`, cycle by cycle."""
    first = [user("a", "INSERT", 100, 1), user("b", "INSERT", 110, 2), user("c", "INSERT", 115, 4)]
    yield (first,)
    yield (
        [user("d", "UPDATE-INSERT", 90, 1), user("e", "DELETE", 120, 2), first[0]],
        [user("f", "UPDATE-INSERT", 130, 4), user("g", "INSERT", 999, 3), user("h", "DELETE", 1000, 3)],
    )
    yield (
        [user("i", "UPDATE-INSERT", 119, 2), user("j", "INSERT", 0, 2), user("k", "INSERT", 0, 5)],
        [user("l", "UPDATE-INSERT", 998, 3), user("f", "UPDATE-INSERT", 130, 4)],
    )


def late_versions() -> Iterator[Events]:
    """Yield events of `past`: some come late, and the new row of a key change is a second late."""
    yield ([user("a", "INSERT", 100, 1), user("c", "UPDATE-INSERT", 120, 1), user("d", "INSERT", 100, 2)],)
    moved = replace(user("f", "UPDATE-INSERT", 140, 3), at_s=141)
    yield (
        [
            user("b", "UPDATE-INSERT", 110, 1),
            user("e", "DELETE", 130, 2),
            user("d2", "UPDATE-INSERT", 120, 2),
        ],
        [moved, replace(user("g", "UPDATE-INSERT", 141, 3), at_s=140), user("h", "DELETE", 150, 3)],
    )
    yield ()


def backfilled() -> Iterator[Events]:
    """Yield events of `read`: of each key a backfill has read the row before, between or after changes."""

    def captured(key: int) -> list[MadeEvent]:
        return [user(f"{key}a", "INSERT", 10, key, "w1"), user(f"{key}b", "UPDATE-INSERT", 20, key, "w2")]

    def read(key: int, at_s: int) -> MadeEvent:
        return replace(user(f"{key}r", "INSERT", 0, key, "w0"), at_s=at_s)

    yield (
        [*captured(1), read(1, 100), *captured(2), *captured(3)[:1], read(4, 100)],
        [read(5, 5), read(6, 15), read(7, 100)],
    )
    yield ([read(2, 100), read(3, 100), *captured(4), *captured(5), *captured(6)],)
    yield (captured(3)[1:],)


TABLES: Final = {"users": newest_first, "past": late_versions, "read": backfilled}


@pytest.fixture(scope="module")
def pipeline(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path_factory: pytest.TempPathFactory
) -> Pipeline:
    """A pipeline of these tables after three cycles; no check fails before a test damages a history."""
    folder = StreamFolder(tmp_path_factory.mktemp("stream"))
    options = {"past": KEEPS_ALL, "read": TableOptions(history=True)}
    made = make_pipeline(session_lake, folder.path, options)
    for cycle in zip(*(events() for events in TABLES.values()), strict=True):
        for table, files in zip(TABLES, cycle, strict=True):
            for number, events in enumerate(files):
                of_table = [replace(event, table=table) for event in events]
                folder.write(of_table, compressed=number == 0)
        made = sync(made, spark)
    assert failed_checks(made, spark) == {}
    return made


def test_the_newest_change_of_each_row_counts(pipeline: Pipeline) -> None:
    """Late, repeated and backfill events override no newer row and restore no deleted one."""
    cuts = [cut.tables["users"] for cut in list_cuts(pipeline.lake)[: len(list(newest_first()))]]
    names = [{row["id"]: row["name"] for row in rows_of(pipeline, "users", cut)} for cut in cuts]
    assert names == [{1: "a", 2: "b", 4: "c"}, {1: "a", 4: "f"}, {1: "a", 4: "f", 5: "k"}]


def test_tables_without_trust_in_inserts_are_merged_together(pipeline: Pipeline) -> None:
    """Each cycle makes one attempt for all tables and histories, and none of them falls back."""
    every = [load_table(pipeline, name).metadata.snapshots for name in pipeline.lake_tables]
    merged = [snapshot for snapshots in every for snapshot in snapshots if fact(snapshot, ATTEMPT)]
    assert {"false"} == {fact(snapshot, FELL_BACK) for snapshot in merged}


def test_a_cycle_that_finds_no_file_changes_nothing(pipeline: Pipeline, spark: "SparkSession") -> None:
    """Where no file is new a cycle commits to no table, except for the time of a poll once a minute."""
    run_cycle(pipeline, spark)
    before = state_of(pipeline)
    assert not run_cycle(pipeline, spark).read.committed
    assert before == state_of(pipeline)


def test_folders_and_files_that_change(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """A new object is found while running, a rewritten file is read again, a broken one is quarantined.

    An event of the new object has the uuid of another table's.
    """
    folder = StreamFolder(tmp_path)
    pipeline = make_pipeline(session_lake, tmp_path)
    folder.write([user("a", "INSERT", 100, 1)], name="one.jsonl")
    pipeline = sync(pipeline, spark)
    folder.write([user("a", "INSERT", 100, 1), user("b", "INSERT", 101, 2)], name="one.jsonl")
    folder.write([MadeEvent("a", "orders", "INSERT", 105, {"id": 7, "total": "12.50"})])
    broken = folder.path / "shop_users/2027/01/15/08/01"
    folder.put(broken / "bad.jsonl", b'{"uuid": "x", \n')
    folder.put(broken / "cut.avro", b"Obj\x01\x04")
    folder.put(broken / "empty.jsonl.gz", b"")
    pipeline = sync(pipeline, spark)
    assert found_rows(pipeline, "users") == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    assert found_rows(pipeline, "orders") == [{"id": 7, "total": "12.50"}]
    assert len(quarantined_rows(pipeline)) == 3
    assert failed_checks(pipeline, spark) == {}


def test_a_file_that_is_mended_at_the_source(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """A newer version of a file closes its quarantined records that it contains; the others stay."""
    folder = StreamFolder(tmp_path)
    pipeline = make_pipeline(session_lake, tmp_path, columns={"users": {"age": "INT64"}})
    place = folder.path / "shop_users/2027/01/15/08/00"

    def aged(uuid: str, key: int, age: object) -> MadeEvent:
        return MadeEvent(uuid, "users", "INSERT", 100 + key, {"id": key, "age": age})

    for age, is_whole in (("seven", False), (8, True)):
        folder.write([aged("a", 1, 7), aged("b", 2, age)], name="one.jsonl")
        folder.write([aged("c", 3, age) if not is_whole else aged("d", 4, age)], name="other.jsonl")
        for name, packed, event in (
            ("cut.jsonl", False, aged("e", 5, 9)),
            ("cut.jsonl.gz", True, aged("f", 6, 9)),
        ):
            data = folder.write([event], name=name, compressed=packed).read_bytes()
            folder.put(place / name, data if is_whole else data[: len(data) // 2])
        stamps = dict.fromkeys(("read_timestamp", "source_timestamp"), to_datetime(ORIGIN + 107_000_000))
        write_avro(tmp_path / "whole.avro", [{**aged("g", 7, 9).to_json(), **stamps}])
        data = (tmp_path / "whole.avro").read_bytes()
        folder.put(place / "cut.avro", data if is_whole else data[:-20])
        pipeline = sync(pipeline, spark)
        assert count_quarantined_records(pipeline.lake) == (1 if is_whole else 5)
    assert [row["id"] for row in found_rows(pipeline, "users")] == [1, 2, 4, 5, 6, 7]
    assert found_table(pipeline, "users").schema().identifier_field_names() == {"id"}
    (left,) = load_quarantine(pipeline.lake)
    assert left.name == "shop.users/c"
    assert [row["record_id"] for row in quarantined_rows(pipeline)].count("shop.users/b/shop.users/b") == 1
    assert failed_checks(pipeline, spark) == {}


def test_what_comes_again_when_nobody_remembers_it(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """Later than it is recognised an event is logged again and changes no row; sooner it must not be."""
    folder = StreamFolder(tmp_path)
    pipeline = make_pipeline(session_lake, tmp_path, late_files_s=0.001)
    events = [user("a", "INSERT", 100, 1), user("b", "UPDATE-INSERT", 110, 1)]
    for _ in range(2):
        folder.write(events)
        pipeline = sync(pipeline, spark)
    assert found_rows(pipeline, "users") == [{"id": 1, "name": "b"}]
    assert len(log_rows(pipeline)) == 4
    assert failed_checks(pipeline, spark) == {}
    log = pipeline.lake.system_table(LOG)
    log.append(log.scan(row_filter="ordinal = 3").to_arrow())
    assert failed_checks(pipeline, spark, "exactly_once")["exactly_once"] == "5 changes, 1 of them repeated"


def test_history_and_deleted_rows_of_late_changes(pipeline: Pipeline) -> None:
    """A late change becomes a version between older ones; a deleted row stays so, and keeps its values.

    A version that its successor precedes by the source's clock was valid for no time.
    """
    history_rows = rows_of(pipeline, "past__history")
    versions = sorted(history_rows, key=lambda row: (row["id"], row["valid_from"], str(row["valid_to"])))
    assert [(row["id"], row["name"], row[IS_CURRENT]) for row in versions] == [
        (1, "a", False),
        (1, "b", False),
        (1, "c", True),
        (2, "d", False),
        (2, "d2", False),
        (3, "f", False),
        (3, "g", False),
    ]
    assert [(row["valid_to"] - row["valid_from"]).seconds for row in versions[5:]] == [0, 9]
    assert all(item["valid_to"] == two["valid_from"] for item, two in itertools.pairwise(versions[:3]))
    rows = {row["id"]: (row["name"], row[DELETED]) for row in found_rows(pipeline, "past")}
    assert rows == {1: ("c", False), 2: ("d2", True), 3: ("g", True)}


def test_a_backfill_moves_no_version_of_a_captured_change(pipeline: Pipeline, spark: "SparkSession") -> None:
    """A backfilled row shows when it was read, not when it changed; the check sees a history that differs.

    The read comes before, between or after captured changes, in their cycle or in others, or all alone.
    """
    changed = [("w1", 10, 20), ("w2", 20, None)]
    late = [("w0", 10, 10), *changed]
    expected = {1: late, 2: late, 3: late, 4: late, 5: [("w0", 5, 10), *changed], 6: late}
    assert {**expected, 7: [("w0", 100, None)]} == versions_in_seconds(pipeline)
    rebuild_table(pipeline, spark, "read__history")
    assert {**expected, 7: [("w0", 100, None)]} == versions_in_seconds(pipeline)
    assert failed_checks(pipeline, spark, "histories_sound") == {}

    falsified = "timestampadd(SECOND, 80, valid_from)"
    table = pipeline.lake.spark_table("read__history")
    spark.sql(f"UPDATE {table} SET valid_from = {falsified}, valid_to = {falsified} WHERE id = 1")
    cut, damaged = newest_cut(pipeline.lake), head(load_table(pipeline, "read__history"))
    assert cut is not None
    assert damaged is not None
    tables = {**cut.tables, "read__history": damaged.snapshot_id}
    append_cut(pipeline.lake, replace(cut, cut=cut.cut + 1, tables=tables))
    result = check_histories(pipeline, spark, EVERYTHING)
    assert result.tables["read__history"].facts["misdated"] == 2


def test_a_backlog_shows_in_the_lag_until_it_is_read(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """After a cycle of a part, it, the status and Dagster's check are behind by the oldest other file."""
    folder, made_s = StreamFolder(tmp_path), time.time() - 3600
    pipeline = make_pipeline(session_lake, tmp_path, max_files=1)
    for number in (1, 2):
        os.utime(folder.write([user(f"{number}", "INSERT", number, number)]), (made_s, made_s))
    lags = []
    for _ in (1, 2):
        outcome = run_cycle(pipeline, spark)
        freshness = Freshness.after_cycle(outcome.cut, outcome.read.left_since_micros, delivers_events=True)
        lags += [(outcome.lag_s or 0, read_status(pipeline).lag_s or 0, freshness.lag_s)]
    assert tuple([lag_s > 3599 for lag_s in cycle] for cycle in lags) == ([True] * 3, [False] * 3)


def versions_in_seconds(pipeline: Pipeline) -> dict[int, list[tuple[str, int, int | None]]]:
    """Return the versions of `read` by key: name, and bounds in seconds after the source began."""
    by_id: dict[int, list[tuple[str, int, int | None]]] = {}
    for row in rows_of(pipeline, "read__history"):
        since, until = (
            None if moment is None else (from_datetime(moment) - ORIGIN) // 10**6
            for moment in (row["valid_from"], row["valid_to"])
        )
        by_id.setdefault(row["id"], []).append((row["name"], since or 0, until))
    return {key: sorted(versions) for key, versions in by_id.items()}
