"""Oracle: rollbacks that know their row by its ROWID only, and statements that shift keys."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.quarantine import load_quarantine
from cdc_platform.model.base.timestamps import to_datetime, to_rfc3339
from cdc_platform.model.schema.table_options import DELETED_AT, TableOptions
from cdc_platform.model.stream.quarantined_records import QuarantineFilter
from cdc_platform.pipeline.on_demand.replay import replay_records
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform_tests.support.cycles import failed_checks, found_rows, sync
from cdc_platform_tests.support.datastream.files import ORIGIN, StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline
from cdc_platform_tests.support.pipelines import log_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

FOLDER: Final = "HR_JOBS/2027/01/15/08/00"
UPDATED: Final = 300
"""Updates that state that they may change the key, each in its own transaction."""


def line(uuid: str, change: str, scn: int, row_id: str, row: dict[str, Any], tx_id: str = "") -> bytes:
    """Return the line of an event of the table `JOBS`."""
    moment = to_rfc3339(ORIGIN + scn * 1_000_000)
    event = {
        "uuid": uuid,
        "read_timestamp": moment,
        "source_timestamp": moment,
        "object": "HR_JOBS",
        "read_method": "oracle-cdc-logminer",
        "stream_name": "projects/1/locations/here/streams/hr",
        "schema_key": "a1",
        "sort_keys": [],
        "source_metadata": {
            "schema": "HR",
            "table": "JOBS",
            "database": "XE",
            "row_id": row_id,
            "scn": scn,
            "rs_id": " 0x0000d4.000091be.0010 ",
            "ssn": 0,
            "primary_keys": ["id"],
            "change_type": change,
            "is_deleted": "DELETE" in change,
            "tx_id": tx_id or uuid,
        },
        "payload": row,
    }
    return json.dumps(event).encode() + b"\n"


def rollback(uuid: str, scn: int, row_id: str) -> bytes:
    """Return the line of a delete that has only the row's address."""
    return line(uuid, "DELETE", scn, row_id, {"ROWID": row_id})


def test_a_rollback_finds_the_row_that_it_takes_away(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """It does in the same file, in an older one, and in one that comes later; until then it waits.

    A row that was deleted at the address before is not the one that is meant. Log, history and deleted row
    of `DATED` have the moment of the rollback, not that of the cycle.
    """
    folder = StreamFolder(tmp_path)
    pipeline = make_pipeline(session_lake, tmp_path, {"DATED": TableOptions(history=True, soft_delete=True)})
    dated = line("m", "INSERT", 90, "R1", {"id": 1}) + rollback("m-", 110, "R1")
    place = tmp_path / FOLDER.replace("JOBS", "DATED") / "one.jsonl"
    folder.put(place, dated.replace(b"JOBS", b"DATED"))
    put = {
        "one": line("a", "INSERT", 100, "R1", {"id": 1}) + rollback("a-", 101, "R1"),
        "two": line("b", "INSERT", 100, "R2", {"id": 2}) + line("c", "INSERT", 100, "R3", {"id": 3}),
        "three": line("d", "INSERT", 90, "R4", {"id": 4}) + line("d-", "DELETE", 95, "R4", {"id": 4}),
        "four": rollback("e-", 111, "R4") + rollback("f-", 111, "R5"),
    }
    for name, data in put.items():
        folder.put(tmp_path / FOLDER / f"{name}.jsonl", data)
    pipeline = sync(pipeline, spark)
    assert found_rows(pipeline, "JOBS") == [{"id": 2}, {"id": 3}]
    assert sorted(record.name.rpartition("/")[2] for record in load_quarantine(pipeline.lake)) == [
        "e-",
        "f-",
    ]
    inserted, gone = (to_datetime(ORIGIN + scn * 1_000_000) for scn in (90, 110))
    logged = [row["source_timestamp"] for row in log_rows(pipeline) if row["table_name"] == "DATED"]
    assert [inserted, gone] == logged
    (version,) = rows_of(pipeline, "DATED__history")
    assert (inserted, gone) == (version["valid_from"], version["valid_to"])
    assert [gone] == [row[DELETED_AT] for row in rows_of(pipeline, "DATED")]

    folder.put(tmp_path / FOLDER / "five.jsonl", rollback("b-", 120, "R2"))
    # Late: the row had the address after the older one was gone.
    folder.put(tmp_path / FOLDER / "six.jsonl", line("e", "INSERT", 110, "R4", {"id": 5}))
    pipeline = sync(pipeline, spark)
    assert found_rows(pipeline, "JOBS") == [{"id": 3}]
    assert [record.name.rpartition("/")[2] for record in load_quarantine(pipeline.lake)] == ["f-"]

    # Nobody need ask, and anyone who does changes nothing.
    replay_records(pipeline, QuarantineFilter(table="JOBS"))
    folder.put(tmp_path / FOLDER / "seven.jsonl", line("g", "INSERT", 200, "R6", {"id": 6}))
    pipeline = sync(pipeline, spark)
    assert found_rows(pipeline, "JOBS") == [{"id": 3}, {"id": 6}]
    assert [record.name.rpartition("/")[2] for record in load_quarantine(pipeline.lake)] == ["f-"]
    assert failed_checks(pipeline, spark) == {}


@pytest.fixture(scope="module")
def shifted(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path_factory: pytest.TempPathFactory
) -> Pipeline:
    """Tables whose keys shift, after three cycles: in files of one cycle, and parted over two."""
    folder = StreamFolder(tmp_path_factory.mktemp("shifted"))
    made = make_pipeline(session_lake, folder.path, {}, source="oracle")
    rows = [
        line(f"i{key}", "INSERT", 100, f"R{key}", {"id": key, "name": f"R{key}"}) for key in (1, 2, 11, 12)
    ]
    # UPDATE t SET id = id + 1, twice.
    up, later = ([shift(begin, place) for place in range(4)] for begin in (1, 11))
    cycles: list[dict[str, list[list[bytes]]]] = [
        {"JOBS": [rows, up, [later[2], later[0]]]},
        {"JOBS": [[later[1], later[3]]]},
        {},
    ]
    for table, first in SWAPPED.items():
        inserted = [
            line(f"i{key}", "INSERT", 100, name, {"id": key, "name": name})
            for key, name in enumerate("ABCDEFGH", start=1)
        ]
        at_once, parted = swaps(-1, 1, list("ABCD")), swaps(-5, 5, list("EFGH"))
        come = [parted[place] for place in first]
        rest = [event for place, event in enumerate(parted) if place not in first]
        # Events that were read already come again with the rest, and keep their place.
        for cycle, events in zip(cycles, (inserted, [*at_once, *come], [*rest, *come]), strict=True):
            cycle[table] = [events]
    # With so many transactions, the earlier halves are looked for without a list of them.
    cycles[2]["UPDATED"] = [
        [line(f"u{key}", "UPDATE-INSERT", 300, f"U{key}", {"id": key}) for key in range(UPDATED)]
    ]
    for number, cycle in enumerate(cycles):
        for table, files in cycle.items():
            for place, events in enumerate(files):
                data = b"".join(events).replace(b"JOBS", table.encode())
                folder.put(folder.path / f"HR_{table}/2027/01/15/08/00/{number}{place}.jsonl", data)
        made = sync(made, spark)
    return made


def test_keys_that_shift_belong_to_the_rows_that_have_them(shifted: Pipeline, spark: "SparkSession") -> None:
    """A key that is written before it is freed has its new row, in one file and over several cycles."""
    expected = {2: "R1", 3: "R2", 12: "R11", 13: "R12"}
    assert [{"id": key, "name": name} for key, name in expected.items()] == found_rows(shifted, "JOBS")
    assert failed_checks(shifted, spark) == {}


def test_an_update_that_may_change_its_key_is_an_update(shifted: Pipeline) -> None:
    """Where no second event of its transaction has the key, the row is written as the event states."""
    assert [{"id": key} for key in range(UPDATED)] == found_rows(shifted, "UPDATED")


def shift(begin: int, place: int) -> bytes:
    """Return the half at a place of a statement that gives two rows the next keys."""
    key, row_id = begin + (place + 1) // 2, f"R{begin + place // 2}"
    change = "UPDATE-INSERT" if place % 2 else "UPDATE-DELETE"
    row = {"id": key, "name": row_id}
    return line(f"s{begin}-{place}", change, 200 + place, row_id, row, tx_id=f"t{begin}")


SWAPPED: Final = {"SWAPPED": range(6, 12), "SWAPPED_BY_TURNS": range(1, 12, 2)}
"""Tables, and which events of a transaction come in the first of two cycles."""


@pytest.mark.parametrize("table", SWAPPED)
def test_a_key_that_is_used_twice_for_a_while_has_no_row(shifted: Pipeline, table: str) -> None:
    """Two swaps over one unused key leave no row there, in one cycle and in two."""
    expected = {1: "B", 2: "A", 3: "D", 4: "C", 5: "F", 6: "E", 7: "H", 8: "G"}
    assert [{"id": key, "name": name} for key, name in expected.items()] == found_rows(shifted, table)


def swaps(free: int, begin: int, names: list[str]) -> list[bytes]:
    """Return the halves of a transaction that swaps two rows over a free key, and then two more."""
    item, two, three, four = names
    a, b, c, d = range(begin, begin + 4)
    moves = [(item, a, free), (two, b, a), (item, free, b), (three, c, free), (four, d, c), (three, free, d)]
    return [
        line(f"w{item}-{place}-{change}", change, 200 + place, name, {"id": key, "name": name}, item)
        for place, (name, *keys) in enumerate(moves)
        for change, key in zip(("UPDATE-DELETE", "UPDATE-INSERT"), keys, strict=True)
    ]
