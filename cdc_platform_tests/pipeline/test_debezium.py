"""Events of a real connector of a real database, through all steps of a cycle: the lake is the database."""

import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_platform.checks.freshness import Freshness
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.cuts import list_cuts, newest_cut
from cdc_platform.lake.state.markers import list_markers, markers_of
from cdc_platform.model.base.stored_names import NEW_TABLES_RUN
from cdc_platform.model.schema.table_options import IS_CURRENT, TableOptions
from cdc_platform.model.stream.quarantined_records import QuarantineFilter
from cdc_platform.pipeline.checks.check_result import EVERYTHING, Scope
from cdc_platform.pipeline.checks.log_checks import check_nothing_lost
from cdc_platform.pipeline.checks.value_check import check_values
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.on_demand.replay import replay_records
from cdc_platform.pipeline.on_demand.status import read_status
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.debezium.files import reader
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER, NullPolicy
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform.spark.log.event_order import HALF_FAULT
from cdc_platform_tests.sources.debezium.captures_read import settings_for, truth_of
from cdc_platform_tests.sources.debezium.written_events import COLUMNS, TABLE, envelope, line, settings_with
from cdc_platform_tests.support.cycles import failed_checks, sync
from cdc_platform_tests.support.debezium.connector import WAL_BEFORE, Connector
from cdc_platform_tests.support.debezium.pipelines import (
    append,
    assert_equal,
    free_name,
    lines_of,
    make_pipeline,
    texts,
)
from cdc_platform_tests.support.debezium.snapshots import ITEMS, items, snapshot
from cdc_platform_tests.support.pipelines import log_rows, quarantined_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def test_values_that_were_not_sent(spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path) -> None:
    """Rows are whole in every cycle, through chains, swaps and shifts of keys, and after redelivery."""
    pipeline = make_pipeline(session_lake, tmp_path, "keys", strategy="omit")
    lines = lines_of("keys")
    for begun, end in ((0, 131), (40, 200), (200, len(lines))):
        append(tmp_path / "events.jsonl", lines[begun:end])
        pipeline = sync(pipeline, spark)
    assert_equal(pipeline, "keys")
    assert failed_checks(pipeline, spark) == {}
    marked = [row for row in log_rows(pipeline) if DEFAULT_PLACEHOLDER in (row["new_values"] or "")]
    assert {"700"} == {str(row["keys"]).split(":")[1].strip(" }") for row in marked}
    assert any(row["unavailable_columns"] for row in log_rows(pipeline))


def test_truncates_and_transactions(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """A truncate empties tables in its place among the changes, and ends the versions of their histories."""
    options = {name: TableOptions(history=True) for name in ("public.accounts", "public.notes")}
    options["public.entries"] = TableOptions(soft_delete=True)
    pipeline = make_pipeline(session_lake, tmp_path, "truncates", options)
    lines = lines_of("truncates")
    half = len(lines) // 2
    append(tmp_path / "events.jsonl", lines[:half])
    pipeline = sync(pipeline, spark)
    append(tmp_path / "events.jsonl", lines[half:])
    pipeline = sync(pipeline, spark)
    truth = truth_of("truncates")
    for name in ("public.accounts", "public.notes"):
        assert texts(truth[name].rows, truth[name]) == texts(rows_of(pipeline, name), truth[name])
        current = [row for row in rows_of(pipeline, f"{name}__history") if row[IS_CURRENT]]
        assert texts(truth[name].rows, truth[name]) == texts(current, truth[name])
    assert all(row["__deleted"] for row in rows_of(pipeline, "public.entries"))
    assert failed_checks(pipeline, spark) == {}


def test_a_backlog_shows_in_the_lag_until_it_is_read(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a cycle of a part, it, the status and Dagster's check are behind by the oldest other file."""
    connector, made_s = Connector(), time.time() - 3600
    for key in (1, 2):
        connector.whole(key)
    messages = len(connector.lines) // 2
    monkeypatch.setattr(reader, "MAX_LINES", messages)
    for name, lines in (("1.jsonl", connector.lines[:messages]), ("2.jsonl", connector.lines[messages:])):
        append(tmp_path / name, [f"{text}\n" for text in lines])
        os.utime(tmp_path / name, (made_s, made_s))
    source_settings = settings_with(input=FilesInput(str(tmp_path)), has_transaction_topic=True)
    pipeline = open_pipeline(PipelineSettings(free_name(), source_settings, session_lake, local_read_s=0))
    lags = []
    for _ in (1, 2):
        outcome = run_cycle(pipeline, spark)
        freshness = Freshness.after_cycle(outcome.cut, outcome.read.left_since_micros, delivers_events=True)
        lags.append([outcome.lag_s or 0, read_status(pipeline).lag_s or 0, freshness.lag_s])
    assert [3600 <= lag_s < 4000 for lag_s in lags[0]] == [True] * 3
    assert [lag_s < 1000 for lag_s in lags[1]] == [True] * 3


def doubtful_orders() -> tuple[list[str], list[str]]:
    """Return events of an order without a value, then of its new key, a message, and an open transaction."""
    connector = Connector(commit=2**62, lsn=2**62)
    connector.begin()
    connector.update(50, n=1, big=DEFAULT_PLACEHOLDER)
    connector.end()
    unknown = len(connector.lines)
    connector.begin()
    connector.move(50, 51, n=2, big=DEFAULT_PLACEHOLDER)
    connector.end()
    connector.emit("c29vbg==", transactional=False)
    connector.begin()
    connector.insert(99)
    return connector.lines[:unknown], connector.lines[unknown:]


def test_what_events_leave_in_doubt(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """Equal rows without a key keep their number; unknown values are reported until an event sends them.

    There are unresolved values, rows that a repeated snapshot lacks, and a transaction without its end.
    """
    captures = ("identities", "no_snapshot")
    truths = {name: truth for capture in captures for name, truth in truth_of(capture).items()}
    source_settings = settings_for(truths, input=FilesInput(str(tmp_path)), has_transaction_topic=True)
    source_settings = replace(source_settings, columns={**source_settings.columns, **COLUMNS})
    pipeline = open_pipeline(PipelineSettings(free_name(), source_settings, session_lake))
    identities, unseen = (lines_of(capture) for capture in captures)
    first, second = doubtful_orders()
    ends = [number for number, line in enumerate(identities, start=1) if '"status":"END"' in line]
    half = ends[len(ends) // 2]
    for is_end, portions in enumerate(
        (
            (identities[:half], unseen[:8], [*snapshot(100, [1, 2, 3]), *first]),
            (identities[half:], unseen[8:], [*snapshot(800, [2, 5]), *second]),
        )
    ):
        for name, lines in zip((*captures, "orders"), portions, strict=True):
            append(tmp_path / f"{name}.jsonl", [f"{line.rstrip()}\n" for line in lines])
        pipeline = sync(pipeline, spark)
        names = () if is_end else ("values_resolved", "snapshots_agree", "transactions_arrive")
        warned = failed_checks(pipeline, spark, *names)
        unresolved = warned["values_resolved"].split(". ")[0].split("; ")
        if not is_end:
            assert warned.keys() == {"values_resolved"}
            assert unresolved[0] == "5 values are unresolved"
    assert warned.keys() == {"values_resolved", "snapshots_agree", "transactions_arrive"}
    assert unresolved == [
        "3 values are unresolved",
        '`public.items` {"id":20}: big',
        '`public.items` {"id":20}: other',
        '`public.orders` {"id":51}: big',
    ]
    assert "REPLICA IDENTITY FULL `public.items`" in warned["values_resolved"]
    assert warned["snapshots_agree"].startswith(
        '2 rows of `public.orders` are not in its newest snapshot, such as {"id":1}, {"id":3}'
    )
    assert (
        "Transaction 703, committed at 2023-11-14T22:13:20.703000Z, waits: 1 "
        in warned["transactions_arrive"]
    )
    for name in ("ri_default", "ri_full", "ri_full_no_key", "ri_index_no_key", "ri_switch"):
        truth = truths[f"public.{name}"]
        assert texts(truth.rows, truth) == texts(rows_of(pipeline, f"public.{name}"), truth), name
    markers = markers_of(list_cuts(pipeline.lake), list_markers(pipeline.lake))
    assert [[marker.content for marker in cut_markers] for cut_markers in markers.values()][-1] == ["soon"]


def test_what_comes_again_later_than_anybody_expects(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """A transaction from before what has passed is looked for in all of the log, and changes nothing."""
    columns = {**COLUMNS, "public.items": {"n": "integer"}}
    source_settings = settings_with(
        input=FilesInput(str(tmp_path)), has_transaction_topic=True, columns=columns, dedup_window_s=0.001
    )
    pipeline = open_pipeline(PipelineSettings(free_name(), source_settings, session_lake))
    connector = Connector()
    connector.begin()
    connector.insert(1, 1)
    connector.insert(None, 7)
    connector.lines[-1] = connector.lines[-1].replace('"orders"', '"items"')
    connector.end()
    begun = len(connector.lines)
    connector.begin()
    connector.update(1, n=2)
    connector.end()
    lines = [f"{item}\n" for item in connector.lines]
    until = None
    for portion in (lines[:begun], lines[begun:], lines[:begun]):
        until = read_status(pipeline).watermark_micros
        append(tmp_path / "events.jsonl", portion)
        pipeline = sync(pipeline, spark)
    assert len(log_rows(pipeline)) == 3
    assert [row["n"] for row in rows_of(pipeline, TABLE)] == [2]
    assert [row["n"] for row in rows_of(pipeline, "public.items")] == [7]
    assert failed_checks(pipeline, spark) == {}
    assert check_nothing_lost(pipeline, spark, Scope(after_micros=until)).passed


def test_changes_that_cycles_part(spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path) -> None:
    """Without boundaries of transactions a cycle may end within one, between the halves of a key change, too.

    The row takes along what was not sent, and versions are those of transactions, also where the source's
    clock has gone back.
    """
    connector = Connector()
    connector.begin()
    for key in (1, 2, 3):
        connector.insert(key, 1)
        connector.update(key, n=1, big=f"text {key}")
    connector.delete(3)
    connector.begin()
    connector.move(1, 5, n=1, big=DEFAULT_PLACEHOLDER)
    connector.update(5, n=2, big=DEFAULT_PLACEHOLDER)
    connector.update(5, n=3, big=DEFAULT_PLACEHOLDER)
    connector.transaction -= 100
    connector.begin()
    connector.update(2, n=2, big=DEFAULT_PLACEHOLDER)
    lines = [line for line in connector.lines if "BEGIN" not in line]
    source_settings = settings_with(input=FilesInput(str(tmp_path)), strategy="veto")
    options = {TABLE: TableOptions(history=True, soft_delete=True)}
    settings = PipelineSettings(free_name(), source_settings, session_lake, table_options=options)
    pipeline = open_pipeline(settings)
    for begun, end in itertools.pairwise((0, 6, 8, 10, len(lines))):
        append(tmp_path / "events.jsonl", [f"{line}\n" for line in lines[begun:end]])
        pipeline = sync(pipeline, spark)
    expected = {2: (2, "text 2"), 5: (3, "text 1")}
    actual = {row["id"]: (row["n"], row["big"]) for row in rows_of(pipeline, TABLE)}
    living = {row["id"] for row in rows_of(pipeline, TABLE) if not row["__deleted"]}
    assert {**expected, 1: (1, "text 1"), 3: (1, "text 3")} == actual
    assert expected.keys() == living
    versions = rows_of(pipeline, f"{TABLE}__history")
    current = {row["id"]: (row["n"], row["big"]) for row in versions if row[IS_CURRENT]}
    assert expected == current
    assert failed_checks(pipeline, spark) == {}
    # Nothing is left to read, so the lag stays that of the newest cut, however long ago that was.
    cut = newest_cut(pipeline.lake)
    assert cut is not None
    assert run_cycle(pipeline, spark).lag_s == cut.lag_s() > 0
    status = read_status(pipeline).to_dict()
    assert status["lag_s"] is None
    assert status["silence_s"] > 0
    # Somebody has looked since: the pipeline is alive.
    assert status["polled"] > status["cut_position"]
    marked = [row for row in log_rows(pipeline) if row["unavailable_columns"]]
    assert {('{"n":2,"big":null}', "big"), ('{"n":3,"big":null}', "big")} == {
        (row["new_values"], *row["unavailable_columns"]) for row in marked
    }


def test_a_row_whose_key_changes_is_never_gone(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """Without transaction metadata, both halves enter the log or neither, and a single half is reported.

    Under REPLICA IDENTITY FULL the row has its nulls under the new key.
    """
    columns = {TABLE: {"id": "integer", "n": "numeric(5,2)", "v": "bit varying"}, ITEMS: COLUMNS[TABLE]}
    source_settings = settings_with(input=FilesInput(str(tmp_path)), columns=columns, full_identity=(TABLE,))
    pipeline = open_pipeline(PipelineSettings(free_name(), source_settings, session_lake))
    five, large = "AfQ=", "D0JA"
    connector = Connector()
    connector.insert(7, 7, xs=[7])
    connector.move(7, 17, n=7, xs=None)
    doubtful, connector.lines = items(connector.lines), []
    for key in (1, 2, 3, 4):
        connector.insert(key, five, v="BQ==")
    connector.move(1, 11, n=five, v=None)
    connector.move(2, 12, n="no decimal", v=None)
    connector.move(3, 13, n=large, v=None)
    connector.move(4, 14, n=five, v=None)
    lost_line = connector.lines.pop()
    connector.insert(5, five)
    append(tmp_path / "events.jsonl", [f"{line}\n" for line in (*doubtful, *connector.lines)])
    pipeline = sync(pipeline, spark)
    actual = {row["id"]: (str(row["n"]), row["v"]) for row in rows_of(pipeline, TABLE)}
    assert actual == {11: ("5.00", None), 2: ("5.00", "101"), 3: ("5.00", "101"), 5: ("5.00", None)}
    assert [row["id"] for row in rows_of(pipeline, ITEMS)] == [7]
    reasons = Counter(row["reason"] for row in quarantined_rows(pipeline))
    assert reasons[HALF_FAULT] == 3
    assert len(reasons) == 4
    source_settings = replace(source_settings, null_policies={"smallint[]": NullPolicy.NULL})
    pipeline = open_pipeline(replace(pipeline.settings, source=source_settings))
    replay_records(pipeline, QuarantineFilter(reason="`null_policies`"))
    connector = Connector(lsn=10**6)
    connector.insert(6, five)
    append(tmp_path / "events.jsonl", [f"{line}\n" for line in connector.lines])
    pipeline = sync(pipeline, spark)
    assert [(row["id"], row["xs"]) for row in rows_of(pipeline, ITEMS)] == [(17, None)]
    warned = failed_checks(pipeline, spark)
    assert warned.keys() == {"values_resolved"}
    assert "rows missing from the lake: 1, whose keys changed" in warned["values_resolved"]
    assert f'`{TABLE}` {{"id":4}} became {{"id":14}}' in warned["values_resolved"]
    append(tmp_path / "events.jsonl", [f"{lost_line}\n"])
    pipeline = sync(pipeline, spark)
    assert sorted(row["id"] for row in rows_of(pipeline, TABLE)) == [2, 3, 5, 6, 11, 14]
    assert "gave up" not in check_values(pipeline, spark, EVERYTHING).summary


def test_the_recommended_settings_of_a_connector(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """REPLICA IDENTITY FULL is advised where most updates lack values, until it is there.

    Rows of a table of which the snapshot that the connector began with has no row may be gone. The embedded
    engine's snapshot of new tables says nothing of others.
    """
    source_settings = settings_with(input=FilesInput(str(tmp_path)), strategy="enrich", snapshots="replace")
    source_settings = replace(source_settings, columns={**COLUMNS, ITEMS: COLUMNS[TABLE]})
    pipeline = open_pipeline(PipelineSettings(free_name(), source_settings, session_lake))
    connector = Connector()
    for number in range(120):
        connector.update(1, n=number, big=DEFAULT_PLACEHOLDER)
    rows = [*snapshot(WAL_BEFORE, [1, 2]), *items(snapshot(WAL_BEFORE, [7, 8]))]
    rows = [text.replace('"n": 1', '"n": 1, "big": "large"') for text in rows]
    append(
        tmp_path / "events.jsonl", [f"{line}\n" for line in (*_run("a", rows), *_run("a", connector.lines))]
    )
    pipeline = sync(pipeline, spark)
    result = check_values(pipeline, spark, EVERYTHING)
    advice = f"With REPLICA IDENTITY FULL `{TABLE}`, where 120 of 120 updates lack values, would send all"
    assert advice in result.summary
    assert result.passed
    assert failed_checks(pipeline, spark, "snapshots_agree", "tables_equal_log") == {}
    append(
        tmp_path / "events.jsonl", [f"{text}\n" for text in _run(NEW_TABLES_RUN, snapshot(10**6 - 1, [1, 2]))]
    )
    pipeline = sync(pipeline, spark)
    assert failed_checks(pipeline, spark, "snapshots_agree") == {}
    before = {"id": 1, "n": 119, "big": "large"}
    place = {"lsn": 10**7, "sequence": json.dumps([str(10**7), str(10**7)])}
    full = line(envelope("u", before=before, after={**before, "n": 200}, source=place), {"id": 1})
    again = [*_run("b", snapshot(10**6, [1])), full]
    append(tmp_path / "events.jsonl", [f"{text}\n" for text in again])
    pipeline = sync(pipeline, spark)
    assert "FULL" not in check_values(pipeline, spark, EVERYTHING).summary
    assert rows_of(pipeline, TABLE)[0]["n"] == 200
    (warned,) = failed_checks(pipeline, spark).items()
    assert warned[0] == "snapshots_agree"
    assert warned[1].startswith(f'2 rows of `{ITEMS}` may be gone, such as {{"id":7}}, {{"id":8}}')


def _run(identity: str, lines: Sequence[str]) -> list[str]:
    """Return messages as one run of the connector sends them."""
    headers = {"__debezium.context.runId": identity}
    return [json.dumps({**json.loads(text), "headers": headers}) for text in lines]
