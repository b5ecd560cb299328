"""Tables with REPLICA IDENTITY FULL and keys of several columns, through whole cycles."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.errors import RowNotFound
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.on_demand.explanation import explain_row
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.debezium.settings.connector import NullPolicy
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform_tests.sources.debezium.written_events import TABLE, envelope, line, settings_with
from cdc_platform_tests.support.cycles import failed_checks, sync
from cdc_platform_tests.support.debezium.pipelines import append, free_name
from cdc_platform_tests.support.debezium.whole_rows import COLUMNS, OLD, halves
from cdc_platform_tests.support.pipelines import found_table, quarantined_rows, rows_of, state_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Case:
    """A table, its messages, and what the lake has at the end.

    Args:
        columns: the declared types, none where messages have a schema block.
        texts: the messages, at positions from 500 on.
        shown: columns.
        rows: the rows, in these columns.
        quarantined: how many events are in quarantine.
        is_full: whether the settings say that the table is under FULL.
        is_parted: whether the last message comes in the next cycle.
    """

    columns: Mapping[str, str]
    texts: list[str]
    shown: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    quarantined: int = 0
    is_full: bool = True
    is_parted: bool = False


def at(text: str, lsn: int) -> str:
    """Return a message at another position of the log."""
    return text.replace("500", str(lsn))


def positioned(*texts: str) -> list[str]:
    """Return messages at positions that follow each other."""
    return [at(text, 500 + place) for place, text in enumerate(texts)]


def in_a_block(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event with a schema block, in which the last column may be NULL."""
    fields = [
        {"field": "id", "type": "int32", "optional": False},
        {"field": "code", "type": "string", "optional": False},
        {"field": "v", "type": "string", "optional": True},
    ]
    return {"schema": {"fields": [{"field": "after", "fields": fields}]}, "payload": event}


def nulls() -> list[str]:
    """Return how values of two types become NULL, by an update and by a key change."""
    old, other = ({**OLD, "id": key, "m": 5} for key in (1, 7))
    new_values = {"n": None, "m": None}
    return positioned(
        line(envelope("c", after=old), {"id": 1}),
        line(envelope("c", after=other), {"id": 7}),
        line(envelope("u", before=other, after=other | new_values), {"id": 7}),
        *halves(old, {**old, **new_values, "id": 2}),
    )


def chosen_key(*, has_block: bool) -> list[str]:
    """Return an update of a row, which has another key then."""
    old, new = ({"id": 1, "code": code, "v": "x"} for code in "ab")
    events = [
        (envelope("r", after=old, source={"snapshot": "true"}), {"code": "a"}),
        (envelope("u", before=old, after=new), {"code": "b"}),
    ]
    return positioned(*(line(in_a_block(event) if has_block else event, key) for event, key in events))


def zero_deleted(table: str) -> list[str]:
    """Return two rows at the source, in a table or one of its partitions, of which that with key 0 goes."""
    rows: list[dict[str, Any]] = [{**OLD, "id": key} for key in (0, 3)]
    source = {"table": table}
    texts = [line(envelope("c", after=row, source=source), {"id": row["id"]}) for row in rows]
    return positioned(*texts, line(envelope("d", before=rows[0], source=source), {"id": 0}))


def half_unread(bad: str) -> list[str]:
    """Return a row and its key change, whose insert cannot be read."""
    moved = halves({"id": 1}, {**OLD, "id": 2, "v": "@@"})
    texts = [line(envelope("c", after=OLD), {"id": 1}), *(at(text, 501) for text in moved)]
    return [text.replace('"@@"', bad) for text in texts]


def delete_unread() -> list[str]:
    """Return a row and its key change, whose delete has a date that nothing can hold."""
    moved = halves({"id": 1, "d": 99_999_999}, {"id": 2, "d": 19_000})
    row = line(envelope("c", after={"id": 1, "d": 19_000}), {"id": 1})
    return [row, *(at(text, 501) for text in moved)]


BAD_TEXTS: Final = {
    "half_pair": '"\\ud800"',
    "digits": "1" * 5_000,
    "depth": "[" * 2_000 + "]" * 2_000,
    "object": '{"a":1}',
}
WITH_M: Final = {**COLUMNS[TABLE], "m": "integer"}
"""With a type whose NULL means NULL, and one whose NULL means a value that was not sent."""
CODED: Final = {"id": "integer", "code": "text", "v": "text"}
DATED: Final = {"id": "integer", "d": "date"}
WHOLE: Final = {
    "nulls": Case(WITH_M, nulls(), ("id", "n", "m", "v"), [(2, None, None, "a"), (7, None, None, "a")]),
    "chosen_key": Case(CODED, chosen_key(has_block=False), ("code",), [("b",)], is_full=False),
    "chosen_key_block": Case({}, chosen_key(has_block=True), ("code",), [("b",)], is_full=False),
    "zero": Case(COLUMNS[TABLE], zero_deleted("orders"), ("id",), [(3,)]),
    "zero_of_partition": Case(COLUMNS[TABLE], zero_deleted("orders_p1"), ("id",), [(3,)]),
    "delete_unread": Case(DATED, delete_unread(), ("id",), [(1,)], 2),
    **{
        name: Case(COLUMNS[TABLE], half_unread(bad), ("id",), [(1,)], 2, is_full=False)
        for name, bad in BAD_TEXTS.items()
    },
}
CASES: Final = WHOLE | {
    f"{name}_parted": replace(WHOLE[name], is_parted=True) for name in ("nulls", "delete_unread", "half_pair")
}


@pytest.fixture(scope="module")
def pipeline(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path_factory: pytest.TempPathFactory
) -> Pipeline:
    """All tables, without a topic of transactions; a parted half is the last message of a cycle."""
    folder = tmp_path_factory.mktemp("whole_rows")
    settings = settings_with(
        input=FilesInput(str(folder)),
        columns={f"public.{name}": case.columns for name, case in CASES.items() if case.columns},
        full_identity=tuple(f"public.{name}" for name, case in CASES.items() if case.is_full),
        null_policies={"numeric": NullPolicy.UNAVAILABLE},
        partitions={r"public\.zero_of_partition_p\d": "public.zero_of_partition"},
    )
    made = open_pipeline(PipelineSettings(free_name(), settings, session_lake))
    waiting = list[str]()
    for number, (name, case) in enumerate(CASES.items()):
        texts = in_place(case, name, number)
        end = len(texts) - case.is_parted
        append(folder / "events.jsonl", [*waiting, *texts[:end]])
        waiting = texts[end:]
        made = sync(made, spark) if case.is_parted else made
    append(folder / "events.jsonl", waiting)
    return sync(made, spark)


def in_place(case: Case, table: str, number: int) -> list[str]:
    """Return the messages of a table, behind those of the tables before it."""
    begun = 1000 * number
    lines = (
        re.sub(r"\b50(\d)\b", lambda digit: str(begun + 500 + int(digit[1])), text) for text in case.texts
    )
    # The commit before is that of the tables before; of a read row, the position of the read.
    return [
        text.replace('\\"400\\"', f'\\"{begun + 550}\\"').replace("orders", table) + "\n" for text in lines
    ]


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_the_source(pipeline: Pipeline, name: str) -> None:
    """Under FULL NULL is NULL, a key change leaves one row, and a faulty half takes the other one along.

    So it is whatever NULL means elsewhere, whether or not FULL is known, and where the halves come in two
    cycles: the half that gives the key up waits for the other one at the end of a file, faulty or not.
    """
    case = CASES[name]
    rows = rows_of(pipeline, f"public.{name}")
    assert case.rows == sorted(tuple(row[column] for column in case.shown) for row in rows)
    of_table = [row for row in quarantined_rows(pipeline) if re.search(rf"public\.{name}\W", str(row))]
    assert case.quarantined == len(of_table)


def test_a_cycle_that_finds_no_line_changes_nothing(pipeline: Pipeline, spark: "SparkSession") -> None:
    """Where no file has grown a cycle commits to no table."""
    before = state_of(pipeline)
    assert not run_cycle(pipeline, spark).read.committed
    assert before == state_of(pipeline)


def test_no_check_fails(pipeline: Pipeline, spark: "SparkSession") -> None:
    """All values are resolved, tables are what the log says, and nothing else is in quarantine."""
    assert sum(case.quarantined for case in CASES.values()) == len(quarantined_rows(pipeline))
    assert failed_checks(pipeline, spark) == {}


def test_a_key_is_in_the_order_of_the_key(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """Iceberg knows the columns of the key, and `explain` takes them in the order of the message's key."""
    columns = {TABLE: {"id": "integer", "h": "integer", "v": "text"}}
    settings = settings_with(input=FilesInput(str(tmp_path)), columns=columns)
    made = open_pipeline(PipelineSettings(free_name(), settings, session_lake))
    text = line(envelope("c", after={"id": 2, "h": 1, "v": "a"}), {"h": 1, "id": 2})
    append(tmp_path / "events.jsonl", [f"{text}\n"])
    made = sync(made, spark)
    assert found_table(made, TABLE).schema().identifier_field_names() == {"id", "h"}
    assert len(explain_row(made, TABLE, "[1, 2]").provenance.steps) == 1
    with pytest.raises(RowNotFound):
        explain_row(made, TABLE, "[2, 1]")
