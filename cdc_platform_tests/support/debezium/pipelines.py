"""Pipelines over what a real connector sent of a real database, and the comparison with that database."""

import gzip
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform_tests.sources.debezium.captures_read import GOLDEN, Truth, settings_for, truth_of
from cdc_platform_tests.support.pipelines import rows_of

_serial: Final = itertools.count(1)


def free_name() -> str:
    """Return a name that no other pipeline has."""
    return f"debezium_{next(_serial)}"


def lines_of(capture: str) -> list[str]:
    """Return the messages of a capture, each a line."""
    with gzip.open(GOLDEN / f"{capture}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return list(lines)


def append(file: Path, lines: Sequence[str]) -> None:
    """Let a file grow, as a program does that writes what it receives."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as opened:
        opened.writelines(lines)


def make_pipeline(
    lake: LakeSettings,
    place: Path | KafkaInput,
    capture: str,
    options: dict[str, TableOptions] | None = None,
    **rest: Any,
) -> Pipeline:
    """Return a pipeline over a folder or topics with messages of a capture, whose columns are declared."""
    event_input = FilesInput(str(place)) if isinstance(place, Path) else place
    source_settings = settings_for(
        truth_of(capture), **{"input": event_input, "has_transaction_topic": True, **rest}
    )
    settings = PipelineSettings(free_name(), source_settings, lake, table_options=options or {})
    return open_pipeline(settings)


def texts(rows: Sequence[dict[str, Any]], truth: Truth) -> list[tuple[str | None, ...]]:
    """Return rows as texts, sorted, with the columns that the database has."""
    shown = [
        tuple(
            None if row[name] is None else str(row[name])
            for name in truth.types
            if name not in truth.generated
        )
        for row in rows
    ]
    return sorted(shown, key=str)


def assert_equal(pipeline: Pipeline, capture: str) -> None:
    """Compare every table with what the database had at the end."""
    for name, truth in truth_of(capture).items():
        assert texts(truth.rows, truth) == texts(rows_of(pipeline, name), truth)
