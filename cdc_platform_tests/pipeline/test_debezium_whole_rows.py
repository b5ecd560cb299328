"""Tables with REPLICA IDENTITY FULL and keys of several columns, through whole cycles."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cdc_platform.errors import RowNotFound
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.on_demand.explain import explain_row
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform_tests.sources.debezium.written_events import TABLE, envelope, line, settings_with
from cdc_platform_tests.support.cycles import failed_checks, sync
from cdc_platform_tests.support.debezium.pipelines import append, free_name
from cdc_platform_tests.support.debezium.whole_rows import COLUMNS, NEW, OLD, POLICIES, halves
from cdc_platform_tests.support.pipelines import found_table, quarantined_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def at(text: str, lsn: int) -> str:
    """Return a message at another position of the log."""
    return text.replace("500", str(lsn))


@pytest.mark.parametrize("policies", POLICIES)
@pytest.mark.parametrize("is_cut", [False, True])
def test_null_is_null_in_the_table(
    spark: "SparkSession",
    session_lake: LakeSettings,
    tmp_path: Path,
    policies: Mapping[str, Any],
    *,
    is_cut: bool,
) -> None:
    """Under FULL a value becomes NULL by an update and by a key change, whatever NULL means elsewhere.

    The halves of a key change may come in two cycles.
    """
    settings = settings_with(
        input=FilesInput(str(tmp_path)), columns=COLUMNS, full_identity=(TABLE,), null_policies=policies
    )
    pipeline = open_pipeline(PipelineSettings(free_name(), settings, session_lake))
    other: dict[str, Any] = {**OLD, "id": 7}
    texts = [
        line(envelope("c", after=OLD), {"id": 1}),
        line(envelope("c", after=other), {"id": 7}),
        line(envelope("u", before=other, after={**other, "n": None}), {"id": 7}),
        *halves(OLD, NEW),
    ]
    lines = [f"{at(text, 500 + place)}\n" for place, text in enumerate(texts)]
    for part in (lines[:4], lines[4:]) if is_cut else (lines,):
        append(tmp_path / "events.jsonl", part)
        pipeline = sync(pipeline, spark)
    assert {row["id"]: (row["n"], row["v"]) for row in rows_of(pipeline, TABLE)} == {
        2: (None, "a"),
        7: (None, "a"),
    }
    assert quarantined_rows(pipeline) == []
    assert failed_checks(pipeline, spark) == {}


def test_a_key_is_in_the_order_of_the_key(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """Iceberg knows the columns of the key, and `explain` takes them in the order of the message's key."""
    columns = {TABLE: {"id": "integer", "h": "integer", "v": "text"}}
    settings = settings_with(input=FilesInput(str(tmp_path)), columns=columns)
    pipeline = open_pipeline(PipelineSettings(free_name(), settings, session_lake))
    text = line(envelope("c", after={"id": 2, "h": 1, "v": "a"}), {"h": 1, "id": 2})
    append(tmp_path / "events.jsonl", [f"{text}\n"])
    pipeline = sync(pipeline, spark)
    assert found_table(pipeline, TABLE).schema().identifier_field_names() == {"id", "h"}
    assert len(explain_row(pipeline, TABLE, "[1, 2]").provenance.steps) == 1
    with pytest.raises(RowNotFound):
        explain_row(pipeline, TABLE, "[2, 1]")


@pytest.mark.parametrize("has_block", [False, True])
def test_a_chosen_key_that_changes_leaves_one_row(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, *, has_block: bool
) -> None:
    """An update whose row before has another key is a key change, whether or not FULL is known yet."""
    settings = settings_with(
        input=FilesInput(str(tmp_path)),
        columns={} if has_block else {TABLE: {"id": "integer", "code": "text", "v": "text"}},
    )
    pipeline = open_pipeline(PipelineSettings(free_name(), settings, session_lake))
    old, new = ({"id": 1, "code": code, "v": "x"} for code in "ab")
    events = [
        (envelope("r", after=old, source={"snapshot": "true"}), {"code": "a"}),
        (envelope("u", before=old, after=new), {"code": "b"}),
    ]
    texts = [line(in_a_block(event) if has_block else event, key) for event, key in events]
    lines = [f"{at(text, lsn)}\n" for text, lsn in zip(texts, (300, 600), strict=True)]
    append(tmp_path / "events.jsonl", lines)
    pipeline = sync(pipeline, spark)
    assert [row["code"] for row in rows_of(pipeline, TABLE)] == ["b"]
    assert failed_checks(pipeline, spark) == {}


def in_a_block(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event with a schema block, in which the last column may be NULL."""
    fields = [
        {"field": "id", "type": "int32", "optional": False},
        {"field": "code", "type": "string", "optional": False},
        {"field": "v", "type": "string", "optional": True},
    ]
    return {"schema": {"fields": [{"field": "after", "fields": fields}]}, "payload": event}


@pytest.mark.parametrize("source", [{}, {"table": "orders_p1"}])
def test_a_partition_has_the_identity_of_its_table(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, source: Mapping[str, Any]
) -> None:
    """`full_identity` names the table, also for rows whose key looks made up, such as 0."""
    settings = settings_with(
        input=FilesInput(str(tmp_path)),
        columns=COLUMNS,
        full_identity=(TABLE,),
        partitions={r"public\.orders_p\d": TABLE},
    )
    pipeline = open_pipeline(PipelineSettings(free_name(), settings, session_lake))
    rows: list[dict[str, Any]] = [{**OLD, "id": key} for key in (0, 3)]
    texts = [line(envelope("c", after=row, source=source), {"id": row["id"]}) for row in rows]
    texts.append(line(envelope("d", before=rows[0], source=source), {"id": 0}))
    append(tmp_path / "events.jsonl", [f"{at(text, 500 + n)}\n" for n, text in enumerate(texts)])
    pipeline = sync(pipeline, spark)
    assert [row["id"] for row in rows_of(pipeline, TABLE)] == [3]
    assert quarantined_rows(pipeline) == []


BAD_TEXTS = {
    "half of a pair": '"\\ud800"',
    "digits": "1" * 5_000,
    "depth": "[" * 2_000 + "]" * 2_000,
    "object": '{"a":1}',
}


@pytest.mark.parametrize("bad", BAD_TEXTS.values(), ids=BAD_TEXTS)
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_faulty_half_takes_the_other_one_along(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, bad: str, *, is_cut: bool
) -> None:
    """Without a transaction topic the row keeps its old key, even if the insert cannot be read at all."""
    settings = settings_with(input=FilesInput(str(tmp_path)), columns=COLUMNS)
    pipeline = open_pipeline(PipelineSettings(free_name(), settings, session_lake))
    moved = halves({"id": 1}, {**OLD, "id": 2, "v": "@@"})
    texts = [at(line(envelope("c", after=OLD), {"id": 1}), 499), *(at(text, 600) for text in moved)]
    lines = [f"{text}\n".replace('"@@"', bad) for text in texts]
    for part in (lines[:2], lines[2:]) if is_cut else (lines,):
        append(tmp_path / "events.jsonl", part)
        pipeline = sync(pipeline, spark)
    assert [row["id"] for row in rows_of(pipeline, TABLE)] == [1]
    assert len(quarantined_rows(pipeline)) == 2


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_faulty_delete_takes_the_insert_along(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, *, is_cut: bool
) -> None:
    """The half that gives the key up waits for the other one at the end of a file, faulty or not."""
    columns = {TABLE: {"id": "integer", "d": "date"}}
    settings = settings_with(input=FilesInput(str(tmp_path)), columns=columns, full_identity=(TABLE,))
    pipeline = open_pipeline(PipelineSettings(free_name(), settings, session_lake))
    moved = halves({"id": 1, "d": 99_999_999}, {"id": 2, "d": 19_000})
    texts = [at(line(envelope("c", after={"id": 1, "d": 19_000}), {"id": 1}), 499)]
    lines = [f"{text}\n" for text in (*texts, *(at(text, 600) for text in moved))]
    for part in (lines[:2], lines[2:]) if is_cut else (lines,):
        append(tmp_path / "events.jsonl", part)
        pipeline = sync(pipeline, spark)
    assert [row["id"] for row in rows_of(pipeline, TABLE)] == [1]
    assert len(quarantined_rows(pipeline)) == 2
