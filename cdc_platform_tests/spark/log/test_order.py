"""From raw records to the order of the log."""

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from cdc_platform.errors import TransactionIncomplete
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.quarantine import load_quarantine
from cdc_platform.model.stream.quarantined_records import QuarantineFilter
from cdc_platform.model.stream.records import ModType, ValueCaptureType
from cdc_platform.pipeline.on_demand.replay import replay_records
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.reading.window_content import content_of
from cdc_platform.spark.log.faults import KEYS_FAULT, LACKING_FAULT, SHAPE_FAULT, UNSOUND_FAULT, VALUES_FAULT
from cdc_platform.spark.log.order import COMPANY, SINGLE_TASK_RECORDS, measure, order_records
from cdc_platform.spark.log.ordered_rows import measure_rows
from cdc_platform.spark.session.session_settings import changed_settings
from cdc_platform_tests.pipeline.bank import SECOND, bank_pipeline, feed_cycle, opening
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import (
    START,
    Mod,
    data_change,
    feed,
    log_rows,
    quarantined_rows,
    raw_table,
    reading_by_spark,
    reading_by_turns,
    state_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.integration

PARTIAL_CAPTURE = ValueCaptureType.NEW_VALUES


def insert(transaction: str, at: int, sequence: int = 0, records: int = 1, mods: int = 1) -> RawRow:
    """Return a record with mods that say where they belong, of a table that no pipeline watches."""
    values: list[Mod] = [({"id": f"{transaction}-{sequence}-{n}"}, {}) for n in range(mods)]
    return data_change(
        "visits",
        ModType.INSERT,
        *values,
        at_micros=START + at,
        transaction=transaction,
        sequence=sequence,
        records=records,
    )


def keys_of(rows: list[dict[str, Any]]) -> list[str]:
    """Return the keys of changes."""
    return [json.loads(row["keys"])["id"] for row in rows]


def ordered_rows(spark: "SparkSession", rows: list[RawRow], expected: int) -> list[dict[str, Any]]:
    """Order records and return the changes by ordinal."""
    frame: DataFrame = spark.createDataFrame(raw_table(rows))
    ordered = order_records(frame, first_ordinal=100, expected_records=expected)
    return sorted((row.asDict() for row in ordered.collect()), key=lambda row: int(row["ordinal"]))


@pytest.mark.usefixtures("many_tasks")
@pytest.mark.parametrize("expected_records", [1, SINGLE_TASK_RECORDS + 1], ids=["one task", "many tasks"])
def test_changes_are_in_commit_order(spark: "SparkSession", expected_records: int) -> None:
    """Timestamp, transaction, record and mod decide, in this order, for any number of tasks."""
    rows = [
        insert("b", 2),
        insert("a", 2, sequence=10, records=2, mods=2),
        insert("c", 1),
        insert("a", 2, sequence=9, records=2),
        insert("ab", 2),
        insert("z", 0),
    ]
    changes = ordered_rows(spark, rows, expected_records)
    assert keys_of(changes) == ["z-0-0", "c-0-0", "a-9-0", "a-10-0", "a-10-1", "ab-0-0", "b-0-0"]
    ordering_keys = [row["ordering_key"] for row in changes]
    assert sorted(ordering_keys) == ordering_keys
    # Commit timestamp, transaction, record sequence and mod, each padded where it is a number.
    assert f"001800000000000002 a {'0' * 30}10 0000000001" == changes[4]["ordering_key"]
    ordinals = [row["ordinal"] for row in changes]
    if expected_records <= SINGLE_TASK_RECORDS:
        assert list(range(100, 107)) == ordinals
    # Where a range of the order has no change, its ordinals are left out.
    assert ordinals[0] >= 100
    assert len(set(ordinals)) == len(ordinals)


COUNTED: list[list[RawRow]] = [
    [],
    [insert("a", 2, sequence=1, records=2, mods=3), insert("b", 1), insert("a", 2, records=2)],
    # of two transactions records are missing, and one of another cannot be used
    [insert("c", 3, records=2), insert("a", 2, records=3), insert("b", 1), {**insert("d", 0), "mods": None}],
    [
        data_change(
            "visits",
            ModType.UPDATE,
            ({"id": "1"}, {}),
            at_micros=START,
            transaction="p",
            capture=PARTIAL_CAPTURE,
        )
    ],
]


@pytest.mark.parametrize("rows", COUNTED, ids=["nothing", "sound", "unsound and incomplete", "patch"])
def test_few_changes_are_counted_as_many_are(spark: "SparkSession", rows: list[RawRow]) -> None:
    """It does not matter whether Spark counts a window, or the process that holds all of it."""
    ordered = order_records(spark.createDataFrame(raw_table(rows)), 100, len(rows))
    assert measure(ordered) == measure_rows(ordered.toArrow())


def test_a_change_does_not_carry_all_mods_of_its_record(spark: "SparkSession") -> None:
    """Spark drops the mods of a record once each is a row: all of a thousand would be copied for each."""
    ordered = order_records(spark.createDataFrame(raw_table([insert("a", 1, mods=2)])), 1, 1)
    plan = ordered._jdf.queryExecution().optimizedPlan().toString()  # noqa: SLF001  Spark shows it to nobody else
    dropped = re.search(r"Generate posexplode\(mods#\d+\), \[(\d*)\]", plan)

    assert dropped is not None
    assert dropped[1]


def test_records_that_came_twice_are_there_once(spark: "SparkSession") -> None:
    """Equal timestamp, transaction and record sequence make a duplicate, from any partition."""
    twice = insert("a", 1, mods=2)
    rows = [twice, {**twice, "partition_token": "other", "cycle": 9}, insert("a", 2), twice]
    changes = ordered_rows(spark, rows, 4)
    assert keys_of(changes) == ["a-0-0", "a-0-1", "a-0-0"]


@pytest.mark.usefixtures("many_tasks")
def test_tasks_share_a_window_by_ranges_with_whole_transactions(
    spark: "SparkSession", capsys: pytest.CaptureFixture[str]
) -> None:
    """One exchange and one sort bring many records into order, with what their transactions are."""
    records = [
        insert(f"t{number:04d}", number // 3, sequence=sequence, records=2)
        for number in range(2_000)
        for sequence in (1, 0)
    ]
    raw = raw_table([*records, *records[:1_000]])
    frame, places = spark.createDataFrame(raw), content_of(raw).places
    ordered = order_records(frame, 0, SINGLE_TASK_RECORDS + 1, places=places)
    ordered.explain()
    plan = capsys.readouterr().out
    assert [plan.count(operator) for operator in ("Exchange ", "Sort [")] == [1, 1]

    rows = ordered.selectExpr("*", "spark_partition_id() AS task").orderBy("ordinal").collect()

    assert [f"t{number:04d}" for number in range(2_000) for _ in range(2)] == [
        row["transaction_id"] for row in rows
    ]
    assert {(2, sequence == 0) for sequence in (0, 1)} == {
        (row["records_seen"], row["begins_transaction"]) for row in rows
    }
    assert len({row["task"] for row in rows}) > 1


def test_fewer_records_than_expected_are_in_order(spark: "SparkSession") -> None:
    """Without known places there are no ranges."""
    records = [insert(f"t{number}", number * 7 % 31, records=1, mods=2) for number in range(12)]
    # Spark would otherwise read small exchanges in one task.
    with changed_settings(
        spark, {"spark.sql.shuffle.partitions": "3", "spark.sql.adaptive.enabled": "false"}
    ):
        rows = ordered_rows(spark, [*records, *records[:3]], 10 * SINGLE_TASK_RECORDS)
    moments = [row["commit_timestamp"] for row in rows]
    assert (len(rows), sorted(moments)) == (24, moments)


def test_what_a_window_holds_is_counted(spark: "SparkSession") -> None:
    """Changes, partial ones too, by table, transactions over all; the next ordinal lies after all of them."""
    partial_update = data_change(
        "transfers", ModType.UPDATE, ({}, {}), at_micros=START, transaction="p", records=2
    )
    # Two tables in one transaction, which counts once; and one in each of two transactions.
    neighbour = data_change(
        "accounts", ModType.INSERT, ({}, {}), at_micros=START, transaction="p", sequence=1, records=2
    )
    whole = {
        **partial_update,
        "value_capture_type": ValueCaptureType.NEW_ROW.value,
        "server_transaction_id": "w",
    }
    whole["number_of_records_in_transaction"] = 1
    frame = spark.createDataFrame(raw_table([insert("a", 1, mods=3), partial_update, neighbour, whole]))
    stats = measure(order_records(frame, 100, 4))
    assert {name: (table.changes, table.partial_updates) for name, table in stats.tables.items()} == {
        "visits": (3, 0),
        "transfers": (2, 1),
        "accounts": (1, 0),
    }
    assert (
        stats.transactions,
        stats.quarantined,
        stats.next_ordinal,
        stats.incomplete,
    ) == (3, 0, 106, None)


def test_a_transaction_with_missing_records_stops_the_log(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Nothing of the window is committed, not even what is complete, and the error has the counts."""
    pipeline = bank_pipeline(session_lake)
    feed(pipeline, START + SECOND, opening(1, 100, START + 1), insert("short", 2, records=3))
    order_state = state_of(pipeline)["change_log"]
    with pytest.raises(TransactionIncomplete) as caught:
        order_changes(pipeline, spark)
    assert (caught.value.transaction_id, caught.value.expected, caught.value.seen) == ("short", 3, 1)
    assert order_state == state_of(pipeline)["change_log"]
    assert quarantined_rows(pipeline) == []


FLAWS: list[tuple[dict[str, Any], str]] = [
    ({"mods": [{"keys": "no JSON", "new_values": "{}", "old_values": "{}"}]}, KEYS_FAULT),
    ({"mods": [{"keys": '{"id": "1"}', "new_values": "[1]", "old_values": "{}"}]}, VALUES_FAULT),
    ({"mods": []}, LACKING_FAULT),
    ({"mod_type": "UNKNOWN"}, LACKING_FAULT),
    ({"table_name": None}, LACKING_FAULT),
    ({"number_of_records_in_transaction": None}, UNSOUND_FAULT),
    (
        {
            "number_of_records_in_transaction": None,
            "mod_type": None,
            "table_name": None,
            "mods": [{"keys": None, "new_values": "[", "old_values": "KeyError('mods')"}],
        },
        f"{SHAPE_FAULT}KeyError('mods')",
    ),
]
"""What is wrong with a record, and the reason that quarantine has."""


def test_an_unsound_record_takes_its_transaction_into_quarantine(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """The log has no part of the transaction, each record has its reason, and the rest is processed."""
    pipeline = bank_pipeline(session_lake)
    bad = [
        {**insert(f"bad{number}", 2, sequence=1, records=2), **flaw} for number, (flaw, _) in enumerate(FLAWS)
    ]
    company = [insert(f"bad{number}", 2, records=2) for number in range(len(FLAWS))]
    feed(pipeline, START + SECOND, *company, *bad, opening(1, 100, START + 1))
    order_changes(pipeline, spark)
    assert keys_of(log_rows(pipeline)) == ["1"]
    quarantined = {row["record_id"]: row for row in quarantined_rows(pipeline)}
    reasons = {f"bad{number}/00000001": reason for number, (_, reason) in enumerate(FLAWS)}
    reasons |= dict.fromkeys((f"bad{number}/00000000" for number in range(len(FLAWS))), COMPANY)
    assert reasons == {name: row["reason"] for name, row in quarantined.items()}
    for number, record in enumerate(bad):
        stored = json.loads(quarantined[f"bad{number}/00000001"]["record"])
        assert stored["server_transaction_id"] == f"bad{number}"
        assert [mod["keys"] for mod in record["mods"]] == [mod.get("keys") for mod in stored["mods"]]


def test_the_reason_of_a_record_is_that_of_its_unsound_mod(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A record of several mods is one row of quarantine, with all of them and what is wrong with any."""
    pipeline = bank_pipeline(session_lake)
    bad = insert("bad", 2, records=2, mods=3)
    bad["mods"][2]["new_values"] = "[1]"
    neighbour = insert("bad", 2, sequence=1, records=2, mods=2)
    feed(pipeline, START + SECOND, bad, neighbour, opening(1, 100, START + 1))
    assert order_changes(pipeline, spark).quarantined == 2
    guilty, innocent = load_quarantine(pipeline.lake)
    assert (guilty.record_id, guilty.reason) == ("bad/00000000", VALUES_FAULT)
    assert (innocent.record_id, innocent.reason) == ("bad/00000001", COMPANY)
    assert [len(json.loads(record.record or "")["mods"]) for record in (guilty, innocent)] == [3, 2]
    assert json.loads(innocent.record or "")["ordering_key"].startswith("001800000000000002 bad ")
    assert len(quarantined_rows(pipeline)) == 2
    by_reason = replay_records(pipeline, QuarantineFilter(reason=VALUES_FAULT))
    assert {record.record_id for record in by_reason.from_records} == {"bad/00000000", "bad/00000001"}


def test_a_change_of_a_table_without_a_key_column_is_sound(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """The emulator writes its keys as null; of a table that has a key the log takes none without it."""
    pipeline = bank_pipeline(session_lake)
    sound, unsound, of_keyed = ("null", "{}"), ("[]", None), list[str]()
    records = [opening(2, 100, START + 4)]
    for number, keys in enumerate((*sound, *unsound)):
        mods = [{"keys": keys, "new_values": '{"v":"1"}', "old_values": "{}"}]
        keyed = opening(1, 100, START + 10 + number)
        of_keyed.append(str(keyed["server_transaction_id"]))
        records += [{**insert(f"keys {keys}", 2), "mods": mods}, {**keyed, "mods": mods}]
    feed(pipeline, START + SECOND, *records)
    order_changes(pipeline, spark)
    logged = {row["transaction_id"] for row in log_rows(pipeline)}
    assert {*(f"keys {keys}" for keys in sound), records[0]["server_transaction_id"]} == logged
    quarantined = sorted(row["record_id"].rpartition("/")[0] for row in quarantined_rows(pipeline))
    assert sorted([*(f"keys {keys}" for keys in unsound), *of_keyed]) == quarantined


@pytest.mark.parametrize("choosing", ["sound_rows", "sound_changes"])
def test_quarantine_is_written_once(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch, choosing: str
) -> None:
    """A run that ended between quarantine and log leaves nothing twice, even if more has been read since."""
    from cdc_platform.pipeline.ordering import log_commit

    pipeline = reading_by_turns(bank_pipeline(session_lake), turn=int(choosing == "sound_changes"))
    feed(pipeline, START + SECOND, {**insert("bad", 2), "mod_type": "UNKNOWN"}, opening(1, 100, START + 1))
    with monkeypatch.context() as patch:
        patch.setattr(log_commit, choosing, lambda *_args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            order_changes(pipeline, spark)
    assert len(quarantined_rows(pipeline)) == 1
    feed(pipeline, START + 2 * SECOND, opening(2, 100, START + SECOND + 1))
    order_changes(pipeline, spark)
    assert len(quarantined_rows(pipeline)) == 1
    assert keys_of(log_rows(pipeline)) == ["1", "2"]


@pytest.mark.usefixtures("many_tasks")
def test_ordinals_rise_across_cycles(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One order spans all cycles, whether one task or many have ordered them."""
    from cdc_platform.pipeline.ordering import order as step
    from cdc_platform.spark.log import order

    pipeline = reading_by_spark(bank_pipeline(session_lake))
    for number in (1, 2, 3, 4):
        for module in (order, step):
            monkeypatch.setattr(module, "SINGLE_TASK_RECORDS", 0 if number % 2 else 50_000)
        feed_cycle(pipeline, number)
        order_changes(pipeline, spark)
    rows = log_rows(pipeline)
    assert len({row["ordinal"] for row in rows}) == len(rows) == 14
    ordering_keys = [row["ordering_key"] for row in rows]
    assert sorted(ordering_keys) == ordering_keys
    assert sorted(row["cycle"] for row in rows) == [row["cycle"] for row in rows]
