"""Schemas that change from file to file: the table follows, or stays as it is, for any order of files."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.quarantine import load_quarantine
from cdc_platform.model.schema.table_options import DELETED, IS_CURRENT, TableOptions
from cdc_platform.model.stream.quarantined_records import QuarantineFilter
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.unlogged_checks import check_files
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.cycle_loop import is_idle
from cdc_platform.pipeline.on_demand.replay import replay_records
from cdc_platform.pipeline.on_demand.status import read_status
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform_tests.support.cycles import failed_checks, found_rows, sync
from cdc_platform_tests.support.datastream.files import MadeEvent, StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline
from cdc_platform_tests.support.pipelines import quarantined_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

ODD_NAME: Final = "v.`1"
MOMENT: Final = {"type": "long", "logicalType": "timestamp-micros"}
PRICE: Final = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
SINGLE: Final = 0.10000000149011612
"""The 32-bit float nearest to 0.1."""


def array_of(kind: Any) -> dict[str, Any]:
    """Return the type of an array whose elements may be NULL."""
    return {"type": "array", "items": ["null", kind]}


MIXED: Final[dict[str, tuple[Any, ...]]] = {
    # column: its types in two schemas, then for each of them the event's value and the lake's
    "whole": ("long", "double", 2**53 + 1, "9007199254740993", "NaN", "NaN"),
    "part": ("long", "double", 5, "5", 0.1, "0.1"),
    "single": ("float", "double", 0.1, SINGLE, 0.1, 0.1),
    "word": ("float", "string", 0.1, str(SINGLE), "x", "x"),
    "blob": ("bytes", "string", "AP8=", "AP8=", "x", "x"),
    "counts": (array_of("long"), "string", [1, None, 2**53 + 1], '[1,null,"9007199254740993"]', "x", "x"),
    "words": (array_of("string"), "string", ['\u00fc"', None], '["\u00fc\\"",null]', "x", "x"),
    "moments": (
        array_of(MOMENT),
        "string",
        ["2027-01-15T08:00:00Z"],
        '["2027-01-15T08:00:00.000000Z"]',
        "x",
        "x",
    ),
    "floats": (array_of("double"), "string", [0.1, "NaN", 1e20], '[0.1,"NaN",1.0E20]', "x", "x"),
    "prices": (array_of(PRICE), "string", ["1.50"], '["1.50"]', "x", "x"),
}
SHAPES: Final[dict[str, dict[str, Any]]] = {
    "a1": {"id": "long", "amount": "long", "note": "string"},
    "a2": {"id": "long", "amount": "long", "added": "string", "note": "string"},
    "a3": {"id": "long", "amount": PRICE, "note": "string"},
    "a4": {"id": "long", "amount": PRICE, "comment": "string"},
    "a5": {"id": "long", "amount": "long", "Note": "string"},
    "b1": {"id": "long", "note": "string"},
    "b2": {"id": "long", "Note": "long"},
    "b3": {"id": "double", "note": "string"},
    "b4": {"id": "bytes", "note": "string"},
    "b5": {"id": "string", "note": "string"},
    "c1": {"id": "long", **{name: case[0] for name, case in MIXED.items()}},
    "c2": {"id": "long", **{name: case[1] for name, case in MIXED.items()}},
}


def write_schemas(folder: StreamFolder) -> None:
    """Write a schema file for each `schema_key`."""
    for key, columns in SHAPES.items():
        fields = [{"name": name, "type": ["null", kind]} for name, kind in columns.items()]
        schema = json.dumps({"type": "record", "name": "payload", "fields": fields})
        folder.put(folder.path / f"schemas/{key}.avsc", schema.encode())


def write(folder: StreamFolder, table: str, key: str, position: int, *values: Any) -> None:
    """Write an insert of a shape as a separate file; the first value is the row's key."""
    row = dict(zip(SHAPES[key], values, strict=True))
    event = MadeEvent(f"{table}-{position}", table, "INSERT", position, row, key)
    folder.write([event], name=f"{key}_mysql-cdc-binlog_{position}.jsonl")


def test_tables_follow_or_stay(spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path) -> None:
    """One batch has several schemas, and old ones arrive late: columns are added and widened only.

    A frozen table leaves new columns out, and holds what does not fit its columns, or is one of them by
    another case; with `quarantine` events of any other schema are quarantined.
    """
    folder = StreamFolder(tmp_path)
    policies = {"frozen": "freeze", "strict": "quarantine"}
    pipeline = make_pipeline(session_lake, tmp_path, schema_policy=policies)
    write_schemas(folder)
    write(folder, "free", "a2", 250, 5, 8, "x", "n5")
    write(folder, "free", "a1", 100, 1, 5, "n1")
    for table in policies:
        # The earliest event has only the key.
        gone = MadeEvent(f"{table}-50", table, "DELETE", 50, {"id": 9}, "a0")
        folder.write([gone], name="a0_mysql-cdc-binlog_50.jsonl")
        write(folder, table, "a2", 200, 2, 6, "x", "n2")
        write(folder, table, "a1", 100, 1, 5, "n1")
    pipeline = sync(pipeline, spark)
    write(folder, "free", "a1", 120, 2, 6, "n2")
    write(folder, "free", "a4", 300, 4, "1.50", "c4")
    write(folder, "free", "a3", 150, 3, "7.25", "n3")
    for table in policies:
        write(folder, table, "a3", 300, 3, "7.25", "n3")
        write(folder, table, "a1", 120, 4, 8, "n4")
        write(folder, table, "a5", 310, 5, 9, "n5")
    pipeline = sync(pipeline, spark)
    rest: dict[str, Any] = {"added": None, "comment": None}
    free = [
        {"id": 1, "amount": Decimal("5.00"), "note": "n1", **rest},
        {"id": 2, "amount": Decimal("6.00"), "note": "n2", **rest},
        {"id": 3, "amount": Decimal("7.25"), "note": "n3", **rest},
        {"id": 4, "amount": Decimal("1.50"), "note": None, "added": None, "comment": "c4"},
        {"id": 5, "amount": Decimal("8.00"), "note": "n5", "added": "x", "comment": None},
    ]
    rows = [{name: row[name] for name in free[0]} for row in found_rows(pipeline, "free")]
    assert rows == free
    first, last = {"id": 1, "amount": 5, "note": "n1"}, {"id": 4, "amount": 8, "note": "n4"}
    assert found_rows(pipeline, "frozen") == [first, {"id": 2, "amount": 6, "note": "n2"}, last]
    assert found_rows(pipeline, "strict") == [first, last]
    reasons = sorted(
        (row["table_name"], row["reason"].partition(": ")[2]) for row in quarantined_rows(pipeline)
    )
    is_wider = "`amount` is DECIMAL(10,2), and in the table INT64"
    is_cased = "`Note` is new, `note` is missing"
    assert [
        ("frozen", "`Note` is `note` in the table"),
        ("frozen", is_wider),
        *(("strict", reason) for reason in (is_cased, "`added` is new", is_wider)),
    ] == reasons
    assert failed_checks(pipeline, spark) == {}


def several_types(folder: StreamFolder, cycle: int) -> None:
    """Write columns of two types, of which one or the other comes first, or both at once."""
    sent = {key: [case[place] for case in MIXED.values()] for key, place in (("c1", 2), ("c2", 4))}
    cycles = (
        (("narrow_first", "c1"), ("wide_first", "c2"), ("at_once", "c1"), ("at_once", "c2")),
        (("narrow_first", "c2"), ("wide_first", "c1")),
    )
    for table, key in cycles[cycle] if cycle < len(cycles) else ():
        number = int(key.removeprefix("c"))
        write(folder, table, key, number, number, *sent[key])


def bytes_then_text(folder: StreamFolder, cycle: int) -> None:
    """Write a row whose key is bytes, and then one whose key is the text of these in base64."""
    if cycle < 2:
        write(folder, "binary", ("b4", "b5")[cycle], cycle + 1, "AP8=", ("old", "new")[cycle])


def case_pairs(folder: StreamFolder, cycle: int) -> None:
    """Write columns whose names differ in case only."""
    if cycle == 0:
        write(folder, "pairs", "b1", 1, 1, "text")
    if cycle < 2:
        write(folder, "pairs", "b2", cycle + 2, cycle + 2, cycle + 2)


WIDENING: Final[tuple[dict[str, list[tuple[str, int, Any, str]]], ...]] = (
    {"w1": [("INSERT", 10, 1, "a"), ("DELETE", 30, 1, "a"), ("INSERT", 11, 2, "b"), ("INSERT", 12, 3, "c")]},
    # A row of before its deletion comes late, a row changes, another one is deleted, and one is not a number.
    {
        "w2": [
            ("UPDATE-INSERT", 20, "1", "late"),
            ("UPDATE-INSERT", 40, "2", "new"),
            ("DELETE", 50, "3", "c"),
        ],
        "w3": [("INSERT", 41, "4x", "d")],
    },
    # Both spellings, in a cycle in which no type changes any more.
    {
        "w1": [("UPDATE-INSERT", 21, 1, "later"), ("UPDATE-INSERT", 35, 2, "old")],
        "w2": [("UPDATE-INSERT", 49, "3", "late")],
    },
)
NARROWER: Final[tuple[dict[str, list[tuple[str, int, Any, str]]], ...]] = (
    {"newer": [("INSERT", 60, "1", "b"), ("DELETE", 50, "3", "a")]},
    {"older": [("INSERT", 10, 3, "a")]},
)
KEEPS_ALL: Final = TableOptions(soft_delete=True, history=True)


def keys_of_two_types(folder: StreamFolder, cycle: int) -> None:
    """Write the events of keys that are integers in some files and texts in others."""
    for prefix, cycles in (("widening", WIDENING), ("narrower", NARROWER)):
        for table in (f"{prefix}_plain", f"{prefix}_kept"):
            for key, events in cycles[cycle].items() if cycle < len(cycles) else ():
                made = (
                    MadeEvent(
                        f"{table}-{position}", table, change, position, {"id": row, ODD_NAME: value}, key
                    )
                    for change, position, row, value in events
                )
                folder.write(made, name=f"{key}_mysql-cdc-binlog_{events[0][1]}.jsonl")


@pytest.fixture(scope="module")
def caught_up(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path_factory: pytest.TempPathFactory
) -> Pipeline:
    """Tables whose schemas change, after three cycles."""
    folder = StreamFolder(tmp_path_factory.mktemp("caught_up"))
    write_schemas(folder)
    options = dict.fromkeys(("widening_kept", "narrower_kept"), KEEPS_ALL)
    pipeline = make_pipeline(session_lake, folder.path, options)
    for cycle in range(len(WIDENING)):
        for cases in (several_types, bytes_then_text, case_pairs, keys_of_two_types):
            cases(folder, cycle)
        pipeline = sync(pipeline, spark)
    return pipeline


def test_no_check_fails_while_schemas_change(caught_up: Pipeline, spark: "SparkSession") -> None:
    """Tables and histories equal the result of the log."""
    assert failed_checks(caught_up, spark) == {}


@pytest.mark.parametrize("table", ["at_once", "narrow_first", "wide_first"])
def test_columns_of_several_types_are_the_same_in_any_order(caught_up: Pipeline, table: str) -> None:
    """No digit is lost, for any order of the types, in one cycle or several."""
    rows = found_rows(caught_up, table)
    assert [[case[place] for case in MIXED.values()] for place in (3, 5)] == [
        [row[name] for name in MIXED] for row in rows
    ]


def test_bytes_are_no_key_of_texts(caught_up: Pipeline) -> None:
    """A text in base64 may be that of another row: events with texts are quarantined, and rows stay."""
    assert [(row["id"], row["note"]) for row in rows_of(caught_up, "binary")] == [(b"\x00\xff", "old")]
    (quarantined,) = quarantined_rows(caught_up)
    assert "`id` is bytes, but in the event it is not a float, bytes or array:" in quarantined["reason"]


def test_columns_that_differ_in_case_only_have_their_own_values(caught_up: Pipeline) -> None:
    """Both columns exist, in the cycle that finds the new one and in those after."""
    assert [(row["id"], row["note"], row["Note__int64"]) for row in found_rows(caught_up, "pairs")] == [
        (1, "text", None),
        (2, None, 2),
        (3, None, 3),
    ]


def test_keys_that_widen_are_those_that_were_deleted(caught_up: Pipeline) -> None:
    """A deletion by an integer counts for the text with its digits, in tables, kept rows and histories."""
    tables = ("widening_plain", "widening_kept")
    actual = {
        table: sorted((row["id"], row[ODD_NAME]) for row in rows_of(caught_up, table)) for table in tables
    }
    living = [("2", "new"), ("4x", "d")]
    kept = sorted([("1", "later"), ("3", "late"), *living])
    assert dict(zip(tables, (living, kept), strict=True)) == actual
    assert {row["id"] for row in rows_of(caught_up, "widening_kept") if not row[DELETED]} == {"2", "4x"}
    history_rows = rows_of(caught_up, "widening_kept__history")
    versions = sorted(history_rows, key=lambda row: (row["id"], row["valid_from"]))
    assert [(row["id"], row[ODD_NAME], row[IS_CURRENT]) for row in versions] == [
        *(("1", value, False) for value in ("a", "late", "later")),
        *(("2", value, value == "new") for value in ("b", "old", "new")),
        *(("3", value, False) for value in ("c", "late")),
        ("4x", "d", True),
    ]


def test_a_deletion_counts_for_a_key_of_a_narrower_file(caught_up: Pipeline) -> None:
    """A key that was deleted as a text stays so for an older file with integers, which widens nothing."""
    assert found_rows(caught_up, "narrower_plain") == [{"id": "1", ODD_NAME: "b"}]
    rows = {row["id"]: (row[ODD_NAME], row[DELETED]) for row in rows_of(caught_up, "narrower_kept")}
    assert rows == {"1": ("b", False), "3": ("a", True)}
    current = {row["id"]: row[IS_CURRENT] for row in rows_of(caught_up, "narrower_kept__history")}
    assert current == {"1": True, "3": False}


def put_keyed(folder: StreamFolder, position: int, change: str, key: str, value: str) -> None:
    """Write an event of `keyed`, whose key is a column of this name."""
    event = MadeEvent(f"k{position}", "keyed", change, position, {key: 1, "v": value}).to_json()
    event["source_metadata"]["primary_keys"] = [key]
    path = folder.path / f"shop_keyed/2027/01/15/08/00/{key}_{position}.jsonl"
    folder.put(path, json.dumps(event).encode())


def test_events_of_another_key_are_quarantined(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """The key is that of the first cycle's earliest event; the same one in other letters can be declared.

    A float is not a key of integers until the type is declared: keys neither merge nor repeat.
    """
    folder = StreamFolder(tmp_path)
    write_schemas(folder)
    pipeline = make_pipeline(session_lake, tmp_path)
    keys = [2**53, 2**53 + 1, 5]
    for number, key in enumerate(keys):
        write(folder, "floating", "b1", number, key, "old")
    write(folder, "floating", "b3", 10, 5.0, "new")
    put_keyed(folder, 10, "INSERT", "id", "a")
    put_keyed(folder, 20, "UPDATE-INSERT", "ID", "b")
    put_keyed(folder, 30, "INSERT", "uid", "c")
    pipeline = sync(pipeline, spark)
    put_keyed(folder, 40, "DELETE", "ID", "b")
    put_keyed(folder, 50, "INSERT", "ID", "d")
    pipeline = sync(pipeline, spark)
    assert found_rows(pipeline, "keyed") == [{"id": 1, "v": "a"}]
    assert [(row["id"], row["note"]) for row in found_rows(pipeline, "floating")] == [
        (key, "old") for key in sorted(keys)
    ]
    reasons = [row["reason"].partition(";")[0] for row in quarantined_rows(pipeline)]
    of_keys = [reason for reason in reasons if "`keyed`" in reason]
    assert sorted(of_keys) == [
        *["The key of `keyed` is id, but the event's key is ID"] * 3,
        "The key of `keyed` is id, but the event's key is uid",
    ]
    (of_type,) = set(reasons) - set(of_keys)
    assert "`id` is not a float, bytes or array, but in the event it is a float:" in of_type
    source = pipeline.settings.source
    assert isinstance(source, DatastreamSettings)
    columns = {"shop.floating": {"id": "INT64"}}
    declared = replace(source, columns=columns, keys={"shop.keyed": ("id",)})
    pipeline = open_pipeline(replace(pipeline.settings, source=declared))
    replay_records(pipeline, QuarantineFilter())
    pipeline = sync(pipeline, spark)
    assert found_rows(pipeline, "keyed") == [{"id": 1, "v": "d"}]
    actual = {row["id"]: row["note"] for row in found_rows(pipeline, "floating")}
    assert actual == {5: "new", 2**53: "old", 2**53 + 1: "old"}
    assert [record.reason for record in load_quarantine(pipeline.lake)] == [
        "The event has no value for a column of the key of `keyed`: id"
    ]
    assert failed_checks(pipeline, spark) == {}


def test_a_file_that_cannot_be_read_is_named(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """The others are read; it is retried after a pause or on request, and read once it can be."""
    folder = StreamFolder(tmp_path)
    pipeline = make_pipeline(session_lake, tmp_path)
    write_schemas(folder)
    bad = folder.put(folder.path / "schemas/b1.avsc", b"{")
    write(folder, "free", "a1", 100, 1, 5, "n1")
    event = MadeEvent("u", "free", "INSERT", 110, {"id": 2})
    unread = folder.write([event], name="b1_mysql-cdc-binlog_1.jsonl")
    outcome = run_cycle(pipeline, spark)
    result = check_files(pipeline, spark, EVERYTHING)
    assert (result.passed, result.facts) == (False, {"unread_files": 1})
    assert str(unread) in result.summary
    assert str(bad) in result.summary
    assert not run_cycle(open_pipeline(pipeline.settings), spark).read.committed
    outcome = run_cycle(open_pipeline(pipeline.settings), spark, ends_pauses=True)
    # So `sync` ends although it has tried.
    assert (outcome.read.committed, is_idle(outcome)) == (True, True)
    assert [row["id"] for row in found_rows(pipeline, "free")] == [1]
    (file,) = read_status(pipeline).unread_files
    assert (str(unread), 2) == (file.path, file.tries)
    assert "tried 2 times, again at 20" in check_files(pipeline, spark, EVERYTHING).summary
    # No cycle is needed to see it, nor one of other files to continue.
    write(folder, "free", "a1", 120, 3, 5, "n3")
    pipeline = sync(pipeline, spark)
    assert not check_files(pipeline, spark, EVERYTHING).passed
    bad.unlink()
    run_cycle(pipeline, spark, ends_pauses=True)
    assert [row["id"] for row in found_rows(pipeline, "free")] == [1, 2, 3]
    assert check_files(pipeline, spark, EVERYTHING).passed
