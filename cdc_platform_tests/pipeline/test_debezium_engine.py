"""From a real database to the lake with the real engine: concurrent sessions, stops, a kill, checkpoints."""

import base64
import json
import os
import re
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.assets.table_columns import table_schema
from cdc_platform.assets.tables import find_stored
from cdc_platform.errors import CaptureStopped
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.markers import list_markers
from cdc_platform.lake.state.read_progress import load_read_progress
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform.sources.debezium.engine.spool_files import SpoolFile
from cdc_platform.sources.debezium.files.source import DebeziumSource
from cdc_platform.sources.debezium.settings.connector import Strategy
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput
from cdc_platform_tests.servers.postgresql import SUPERUSER, Cluster
from cdc_platform_tests.sources.debezium.postgres_texts import canonical
from cdc_platform_tests.sources.debezium.workload import PREFIX, TABLES, Checkpoint, Options, Workload
from cdc_platform_tests.support.cycles import failed_checks
from cdc_platform_tests.support.debezium.databases import connect, database, play
from cdc_platform_tests.support.pipelines import found_table, log_rows, quarantined_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

UNTOLD: Final = "extra_"
"""Columns that are added with a default, whose value in older rows no event sends."""

WHOLE: Final = "public.whole"
"""The table under REPLICA IDENTITY FULL."""

Row = dict[str, Any]
_OF_COLUMN: Final = "COMMENT ON COLUMN t.{} IS {}"
COMMENTED: Final = (
    *("CREATE TABLE t (id int PRIMARY KEY, a text, b text)", "COMMENT ON TABLE t IS 'Orders.'"),
    *(_OF_COLUMN.format("id", "'Its number.'"), _OF_COLUMN.format("a", "'primary key of x'")),
    "INSERT INTO t VALUES (1)",
)
RECOMMENTED: Final = (
    *(_OF_COLUMN.format("a", "NULL"), _OF_COLUMN.format("b", "'New: \u00e9\U0001f514'")),
    "INSERT INTO t VALUES (2)",
)


def settings_of(server: Cluster, name: str, spool: Path, lake: LakeSettings) -> PipelineSettings:
    """Return the settings of a pipeline that captures a database."""
    everything = {"publication.autocreate.mode": "all_tables"}
    place = EngineInput(
        "127.0.0.1",
        name,
        SUPERUSER,
        str(spool),
        port=server.port,
        slot=name,
        properties=everything,
        keep_spool_s=0,
    )
    settings = DebeziumSettings(place, strategy=Strategy.ENRICH, full_identity=(WHOLE,))
    return PipelineSettings(name, settings, lake)


@contextmanager
def opened(settings: PipelineSettings) -> Iterator[Pipeline]:
    """Open a pipeline as a new process does; its engine ends with the context."""
    pipeline = open_pipeline(settings)
    try:
        # All that start one look at its tables first, be there a spool or not.
        _ = pipeline.tables
        yield pipeline
    finally:
        pipeline.source.close()


def sync(pipeline: Pipeline, spark: "SparkSession") -> None:
    """Run cycles until nothing new is there."""
    while run_cycle(pipeline, spark).read.committed:
        pass


def kill_engine(pipeline: Pipeline) -> None:
    """Kill the engine that runs for the pipeline."""
    assert isinstance(pipeline.source, DebeziumSource)
    assert pipeline.source.capture is not None
    engine = pipeline.source.capture._engine  # noqa: SLF001  nothing else knows whom to kill
    assert engine is not None
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(CaptureStopped):
        engine.wait(60)


def types_of(columns: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the columns that are compared, and their types."""
    return {
        str(column["name"]): str(column["type"])
        for column in columns
        if not column["name"].startswith(UNTOLD)
    }


def true_rows(checkpoint: Checkpoint, table: str) -> list[Row]:
    """Return the rows of a table at a checkpoint, their values as the log has them."""
    table_rows = checkpoint.tables[table]
    names, types = [column["name"] for column in table_rows["columns"]], types_of(table_rows["columns"])
    rows = [dict(zip(names, row, strict=True)) for row in table_rows["rows"]]
    return _sorted({name: canonical(kind, row[name]) for name, kind in types.items()} for row in rows)


def applied_rows(log: Iterable[Mapping[str, Any]], checkpoint: Checkpoint, table: str) -> list[Row]:
    """Return the rows of a table that changes of the log make."""
    types = types_of(checkpoint.tables[table]["columns"])
    rows: dict[str, Row] = {}
    for change in log:
        assert not change["unavailable_columns"]
        if change["table_name"] != f"public.{table}":
            continue
        if change["change_kind"] == "truncate":
            rows.clear()
        elif change["change_kind"] == "delete":
            rows.pop(change["keys"], None)
        else:
            rows[change["keys"]] = json.loads(change["keys"]) | json.loads(change["new_values"])
    return _sorted({name: row.get(name) for name in types} for row in rows.values())


def stored_rows(pipeline: Pipeline, checkpoint: Checkpoint, table: str) -> list[Row]:
    """Return the rows of a table of the lake, their values as the log writes them."""
    types = types_of(checkpoint.tables[table]["columns"])
    rows = rows_of(pipeline, f"public.{table}")
    return _sorted({name: _written(row[name]) for name in types} for row in rows)


def _written(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value if value is None or isinstance(value, int | str | list) else str(value)


def difference(expected: list[Row], actual: list[Row]) -> list[tuple[Any, ...]]:
    """Return what differs: rows that are on one side only, as far as they fit on a line."""
    sides = ({json.dumps(row, sort_keys=True) for row in rows} for rows in (expected, actual))
    missing, extra = sides
    only = sorted(missing ^ extra)
    if not only and len(expected) == len(actual):
        return []
    return [("missing" if text in missing else "extra", re.sub(r"(\w{20})\w+", r"\1", text)) for text in only]


def _sorted(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def docs_of(pipeline: Pipeline) -> dict[str, str | None]:
    """Return what Iceberg shows of the columns of `t`."""
    return {field.name: field.doc for field in found_table(pipeline, "public.t").schema().fields}


def assert_commented(pipeline: Pipeline) -> None:
    """Assert that Iceberg and Dagster show the first comments."""
    assert docs_of(pipeline) == {"id": "primary key: Its number.", "a": "primary key of x", "b": None}
    assert found_table(pipeline, "public.t").properties["comment"] == "Orders."
    described = find_stored(pipeline, "public.t")
    columns = table_schema(described.schema, described.comments).columns
    shown = {column.name: column.description for column in columns}
    assert shown == {"id": "Its number.", "a": "primary key of x", "b": None}


def test_the_lake_is_the_database(
    spark: "SparkSession", session_lake: LakeSettings, capturing: Cluster, tmp_path: Path
) -> None:
    """It is at the end, and its log at each checkpoint, though the engine was stopped and killed.

    A row under REPLICA IDENTITY FULL that gets NULL with another key is among it. Comments of tables and
    columns are those of the time when the engine starts.
    """
    with database(capturing, "engine_to_lake") as name:
        settings = settings_of(capturing, name, tmp_path / "spool", session_lake)
        work = Workload(
            lambda: connect(capturing, name, by_statement=False),
            Options(seed=6, transactions=120, checkpoints=3, keys=24),
        )
        work.set_up()
        play(capturing, name, COMMENTED)
        run = work.run()
        with opened(settings) as pipeline:
            sync(pipeline, spark)
            assert_commented(pipeline)
            checkpoints = [next(run)]
        play(capturing, name, RECOMMENTED)
        with opened(settings) as pipeline:
            sync(pipeline, spark)
            assert docs_of(pipeline) == {
                "id": "primary key: Its number.",
                "a": "",
                "b": "New: \u00e9\U0001f514",
            }
            assert not pipeline.refusals
            checkpoints.append(next(run))
            kill_engine(pipeline)
            checkpoints += run
            sync(pipeline, spark)
    assert quarantined_rows(pipeline) == []
    assert Spool(tmp_path / "spool").files()[0].first_offset > 0
    read_files = filter(None, (SpoolFile.of(Path(path)) for path in load_read_progress(pipeline.lake)))
    assert min(file.first_offset for file in read_files) > 0
    for table in TABLES:
        last = checkpoints[-1]
        assert difference(true_rows(last, table), stored_rows(pipeline, last, table)) == []
    markers = {marker.content: marker for marker in list_markers(pipeline.lake) if marker.prefix == PREFIX}
    assert list(markers) == ["1", "2", "3"]
    log = log_rows(pipeline)
    moved = [
        change["new_values"] for change in log if change["table_name"] == WHOLE and change["previous_keys"]
    ]
    assert any('"amount":null' in values for values in moved)
    for checkpoint in checkpoints:
        limit = markers[str(checkpoint.number)].ordering_key
        before = [change for change in log if change["ordering_key"] < limit]
        for table in TABLES:
            actual = applied_rows(before, checkpoint, table)
            assert difference(true_rows(checkpoint, table), actual) == [], checkpoint.number
    assert failed_checks(pipeline, spark) == {}
