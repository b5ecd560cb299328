"""MongoDB's documents whose updates come without them, late and in any order."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform_tests.support.cycles import failed_checks, sync
from cdc_platform_tests.support.datastream.files import ORIGIN, MadeEvent, StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline
from cdc_platform_tests.support.pipelines import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

CREATED: Final = ("CREATE", 10, {"v": 1})
UPDATED: Final = ("UPDATE", 20, {"v": 2})
WITHOUT_DATA: Final = ("UPDATE", 30, None)
"""The document was deleted before Datastream read it; its delete has not arrived yet."""
Step = tuple[str, int, dict[str, int] | None]


def event(key: str, step: Step) -> dict[str, Any]:
    """Return an event of the collection `docs`."""
    change, second, data = step
    made = MadeEvent(f"{key}{second}", "docs", change, second).to_json()
    place = {"database": "shop", "collection": "docs", "change_type": change, "primary_keys": ["_id"]}
    document = {} if data is None else {"data": data}
    return made | {
        "read_method": "cdc",
        "sort_keys": [ORIGIN // 1_000_000 + second, 1],
        "source_metadata": place,
        "payload": {"_id": key, **document},
    }


def test_updates_without_data_keep_the_newest_document_in_any_order(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """An update without data keeps the document of the newest earlier event, even if that arrives later."""
    folder = StreamFolder(tmp_path)
    pipeline = make_pipeline(session_lake, tmp_path, {"docs": TableOptions(history=True)})
    cycles: list[dict[str, list[Step]]] = [
        {"a": [CREATED, WITHOUT_DATA], "b": [WITHOUT_DATA]},
        {"a": [UPDATED], "b": [UPDATED, CREATED]},
    ]
    for number, steps in enumerate(cycles):
        lines = [json.dumps(event(key, step)) for key, of_key in steps.items() for step in of_key]
        folder.put(tmp_path / f"shop_docs/2027/01/15/08/00/{number}.jsonl", "\n".join(lines).encode())
        pipeline = sync(pipeline, spark)
    assert [(row["_id"], row["data"]) for row in rows_of(pipeline, "docs")] == [
        ('"a"', '{"v":2}'),
        ('"b"', '{"v":2}'),
    ]
    assert failed_checks(pipeline, spark, "tables_equal_log", "histories_sound") == {}
