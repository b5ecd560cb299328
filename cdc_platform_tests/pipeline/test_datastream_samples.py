"""The samples of Datastream's files through all steps of a cycle, against the ends that their sources had."""

import json
import random
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.quarantine import load_quarantine
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform_tests.support.cycles import sync
from cdc_platform_tests.support.datastream.samples import CASES, SAMPLES, SETTINGS, Sample, interpreted
from cdc_platform_tests.support.pipelines import log_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

KEYLESS: Final = "keyless books"
"""Of a table that has its name in common with one that has a key."""
ONE_BY_ONE: Final[Sequence[Sequence[Sample]]] = (
    [sample for name, sample in CASES.items() if name != KEYLESS],
    [CASES[KEYLESS]],
)
"""The samples of each pipeline. Those of one table are successive changes."""
CYCLES: Final = 2


def put(folder: Path, name: str, copy: int) -> None:
    """Put a copy of a sample's file where a stream would write it."""
    made_object = name.replace("/", "_").rpartition(".")[0]
    path = folder / made_object / "2027/01/15/08/00" / f"{copy}_{Path(name).name}"
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(SAMPLES / name, path)


def deliveries(samples: Iterable[Sample], choice: random.Random) -> list[list[str]]:
    """Return the files that come before each cycle: all of them, shuffled, and a third of them twice."""
    files = sorted({name for sample in samples for name in sample.files})
    spread = [*files, *choice.sample(files, (len(files) + 2) // 3)]
    choice.shuffle(spread)
    return [spread[number::CYCLES] for number in range(CYCLES)]


def ids_of(samples: Iterable[Sample], kind: type[SourceEvent | FaultyEvent]) -> set[str]:
    """Return the uuids of the events that can be used, or cannot."""
    events = [event for sample in samples for event in interpreted(sample)]
    return {str(event.event_id).rpartition("/")[2] for event in events if isinstance(event, kind)}


def actual_values(pipeline: Pipeline, sample: Sample) -> dict[str, str]:
    """Return the column of a table that its sample shows, as texts, by key."""
    rows = rows_of(pipeline, sample.table)
    names = next(tuple(json.loads(key)) for key in sample.expected)
    return {_key(row, names): str(row[sample.column]) for row in rows}


def _key(row: dict[str, Any], names: Sequence[str]) -> str:
    return json.dumps({name: row[name] for name in names}, separators=(",", ":"))


def test_the_samples_end_as_their_sources_did(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """All objects are in one lake; their files come shuffled, some twice, over two cycles."""
    choice = random.Random(1)  # noqa: S311  no secret
    for number, samples in enumerate(ONE_BY_ONE):
        folder = tmp_path / str(number)
        settings = PipelineSettings(f"samples_{number}", replace(SETTINGS, path=str(folder)), session_lake)
        pipeline = open_pipeline(settings)
        for cycle, files in enumerate(deliveries(samples, choice)):
            for copy, name in enumerate(files):
                put(folder, name, 100 * cycle + copy)
            pipeline = sync(pipeline, spark)
        # The last of a table's samples shows its end.
        for sample in {sample.table: sample for sample in samples}.values():
            expected = {key: str(value) for key, value in sample.expected.items()}
            assert expected == actual_values(pipeline, sample)
        quarantined = {record.record_id.rpartition("/")[2] for record in load_quarantine(pipeline.lake)}
        assert ids_of(samples, FaultyEvent) == quarantined
        logged = [row["record_id"].rpartition("/")[2] for row in log_rows(pipeline)]
        assert sorted(ids_of(samples, SourceEvent)) == sorted(logged)
