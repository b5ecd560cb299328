"""Rows of a table without a key are counted in the table, for any length of its log."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.rows.keyless import row_of
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.pipeline.completing.equal_rows import EqualRows
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.versions.lake_frames import read_log
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform.spark.log.keyless import count_in_log
from cdc_platform.spark.log.ordered_rows import RowCopies
from cdc_platform_tests.sources.debezium.written_events import envelope, line, settings_with
from cdc_platform_tests.support.cycles import sync
from cdc_platform_tests.support.pipelines import log_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

OPTIONS: Final = {"public.plain": TableOptions(), "public.soft": TableOptions(soft_delete=True)}


class Sender:
    """Writes inserts and deletes of rows of one number, each a message, into all tables alike."""

    def __init__(self, file: Path) -> None:
        self._file, self._lsn = file, 1000

    def send(self, *changes: str) -> None:
        """Write changes such as `+1` and `-1`."""
        with self._file.open("a", encoding="utf-8") as opened:
            opened.writelines(f"{self._event(change, name)}\n" for name in OPTIONS for change in changes)

    def _event(self, change: str, name: str) -> str:
        self._lsn += 10
        source = {"lsn": self._lsn, "sequence": json.dumps([str(self._lsn - 5), str(self._lsn)])}
        source |= {"table": name.removeprefix("public.")}
        row = {"n": int(change[1:])}
        if change.startswith("-"):
            return line(envelope("d", before=row, source=source))
        return line(envelope("c", after=row, source=source))


@pytest.fixture
def pipeline(session_lake: LakeSettings, tmp_path: Path) -> Pipeline:
    """A pipeline of tables without a key."""
    settings = settings_with(
        input=FilesInput(str(tmp_path / "in")),
        columns={name: {"n": "integer"} for name in OPTIONS},
        keys=dict.fromkeys(OPTIONS, ()),
        full_identity=tuple(OPTIONS),
    )
    (tmp_path / "in").mkdir()
    name = f"equal_{tmp_path.name}"
    return open_pipeline(PipelineSettings(name, settings, session_lake, table_options=OPTIONS))


Counts = dict[tuple[str, RowCopies], int]
"""Equal rows by table."""


def counted(pipeline: Pipeline, spark: "SparkSession") -> list[Counts]:
    """Return the counts of all rows in the log: of few rows, by Spark's tasks, from the log."""
    log = read_log(pipeline, spark)
    rows = {row_of(row["keys"]) for row in log_rows(pipeline)}
    equal = EqualRows(pipeline, spark, read_mark(pipeline.lake.system_table(LOG)).cycle, log)
    listed = [(table, row) for table in OPTIONS for row in rows]
    distinct_rows = spark.createDataFrame(listed, "table_name string, row string")
    frames = [equal.count(distinct_rows), count_in_log(log, distinct_rows)]
    counts = [{(row[0], row[1]): row[2] for row in frame.collect()} for frame in frames]
    return [equal.count_few(dict.fromkeys(OPTIONS, rows)), *counts]


def test_equal_rows_are_counted_where_they_lie(
    pipeline: Pipeline, spark: "SparkSession", tmp_path: Path
) -> None:
    """This process, Spark's tasks and the whole log count the same, and each deletion takes one row."""
    sender = Sender(tmp_path / "in" / "events.jsonl")
    sender.send("+1", "+1", "+1", "+2", "+3")
    pipeline = sync(pipeline, spark)
    here, by_tasks, in_log = counted(pipeline, spark)
    assert sorted(here.values()) == [1, 1, 1, 1, 3, 3]
    assert here == by_tasks == in_log
    sender.send("-1", "+2", "-1", "-3")
    pipeline = sync(pipeline, spark)
    here, by_tasks, in_log = counted(pipeline, spark)
    assert sorted(here.values()) == [1, 1, 2, 2]
    assert here == by_tasks == {row: count for row, count in in_log.items() if count}
    sender.send("-1", "-2", "+3")
    sync(pipeline, spark)
    for table in OPTIONS:
        living = [row["n"] for row in rows_of(pipeline, table) if not row.get("__deleted")]
        assert (table, Counter([2, 3])) == (table, Counter(living))
