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
