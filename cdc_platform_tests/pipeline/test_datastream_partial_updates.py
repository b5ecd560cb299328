"""Updates that omit values: in any order of arrival, the row is that of the source."""

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import DELETED, DELETED_AT, TableOptions
from cdc_platform_tests.support.cycles import failed_checks, found_rows, sync
from cdc_platform_tests.support.datastream.files import MadeEvent, StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

KEYS: Final = 60
SCENARIO: Final = [
    ("INSERT", 100, "a", "x"),
    ("UPDATE-INSERT", 110, "b", None),  # the note is large, and was not sent
    ("UPDATE-INSERT", 120, "c", "y"),
    ("UPDATE-INSERT", 130, "d", None),
    ("DELETE", 140, None, None),
    ("INSERT", 150, "e", None),  # here there is none
    ("UPDATE-INSERT", 160, "f", None),
]


def scenario_of(table: str, key: int, choice: random.Random) -> list[MadeEvent]:
    """Return some of the events of a row, in any order."""
    steps = choice.sample(SCENARIO, choice.randint(1, len(SCENARIO)))
    return [made_event(f"{table}-{key}-{step[1]}", table, key, step) for step in steps]


def made_event(uuid: str, table: str, key: int, step: tuple[str, int, str | None, str | None]) -> MadeEvent:
    """Return the event of a step; the column `old` was dropped before any row was updated."""
    change, position, name, note = step
    row = {"id": key, "name": name, "note": note}
    if change == "UPDATE-INSERT":
        return MadeEvent(uuid, table, change, position, row, "a2")
    return MadeEvent(uuid, table, change, position, row | {"old": name})


def row_of(events: Iterable[MadeEvent]) -> dict[str, Any] | None:
    """Return the row that events leave, by the order of the source; None where it is deleted."""
    row: dict[str, Any] | None = {}
    for event in sorted(events, key=lambda event: event.position):
        if event.change == "DELETE":
            row = None
        elif event.change == "INSERT" or event.row["note"] is not None:
            row = {"old": None, **event.row}
        else:
            # An update shows that the row is there again, although the insert that follows a delete is not.
            note = row["note"] if row else None
            row = {"id": event.row["id"], "name": event.row["name"], "note": note, "old": None}
    return row


def is_unresolved(events: Sequence[MadeEvent]) -> bool:
    """Return whether no event has sent the row's note since the row began, so that a check reports it."""
    positions, begun, newest = [-1], [-1], max(events, key=lambda event: event.position)
    for event in events:
        if event.change in {"INSERT", "DELETE"}:
            begun.append(event.position)
        if event.change == "INSERT" or event.row["note"] is not None:
            positions.append(event.position)
    is_patched = any(event.change == "UPDATE-INSERT" and event.row["note"] is None for event in events)
    return is_patched and newest.change != "DELETE" and (max(positions) < 0 or max(positions) < max(begun))


def test_any_order_of_partial_updates_gives_the_same_rows(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """An unsent value is that of the newest earlier change with a value, even if it arrives late."""
    choice = random.Random(7)  # noqa: S311  no secret
    folder = StreamFolder(tmp_path)
    pipeline = make_pipeline(
        session_lake,
        tmp_path,
        {"kept": TableOptions(history=True, soft_delete=True)},
        null_means_unchanged={"*": ("note",)},
        columns={"*": dict.fromkeys(("note", "name", "old"), "STRING")},
    )
    scenarios = {
        (table, key): scenario_of(table, key, choice) for table in ("plain", "kept") for key in range(KEYS)
    }
    for part in range(3):
        for table in ("plain", "kept"):
            folder.write(
                [
                    event
                    for (name, _), events in scenarios.items()
                    if name == table
                    for event in events[part::3]
                ]
            )
        pipeline = sync(pipeline, spark)
    for table in ("plain", "kept"):
        rows = [row_of(events) for (name, _), events in scenarios.items() if name == table]
        assert living(found_rows(pipeline, table)) == [row for row in rows if row is not None]
    unknown = sum(map(is_unresolved, scenarios.values()))
    failed = failed_checks(pipeline, spark)
    assert unknown > 0
    assert {"values_resolved"} == failed.keys()
    assert failed["values_resolved"].startswith(f"{unknown} values are unresolved")


def living(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that are not deleted, without what says so."""
    added = {DELETED, DELETED_AT}
    return [{name: row[name] for name in row.keys() - added} for row in rows if not row.get(DELETED)]
