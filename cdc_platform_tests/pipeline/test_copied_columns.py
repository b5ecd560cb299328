"""Copies of tables whose columns change: they have the columns of their moment, whatever the log knows."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from cdc_platform.lake.cuts import Cut, list_cuts
from cdc_platform.lake.settings import LakeSettings
from cdc_platform.model.records import ValueCaptureType
from cdc_platform.model.sightings import Look
from cdc_platform.pipeline.copy import copy_tables
from cdc_platform.pipeline.merge import merge_tables
from cdc_platform.pipeline.order import order_changes
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.publish import publish_cut
from cdc_platform.pipeline.table_checks import check_fold
from cdc_platform.pipeline.verdict import EVERYTHING
from cdc_platform.sources.spanner.snapshot import table_arrow_schema
from cdc_platform_tests.pipeline.evolving import STEP, Source, value_of
from cdc_platform_tests.pipelines import START, feed, make_pipeline, rows_of, source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Deed = Callable[[Source], None]

KEYS: Final = "12345"
KNOWN: Final = 1
"""The step at which the log is when copies are planned."""
COPIED: Final = 5
"""The step that copies show."""
END: Final = 9


def add(name: str, code: str, number: int | None = None) -> Deed:
    """Add a column; with a number all rows have a value of it, as by a default, and no record tells so."""

    def deed(source: Source) -> None:
        source.alter("add", name, code)
        for row in source.rows.values():
            row[name] = None if number is None else value_of(code, number)

    return deed


def drop(name: str) -> Deed:
    """Drop a column."""
    return lambda source: source.alter("drop", name, "")


def retype(name: str) -> Deed:
    """Change a column between STRING and BYTES."""
    return lambda source: source.alter("retype", name, "")


def write(number: int, key: str = "1") -> Deed:
    """Write all columns of a row."""
    return lambda source: source.write(key, number, ValueCaptureType.NEW_ROW, tuple(source.columns))


def end_table(source: Source) -> None:
    """Drop the table."""
    source.columns, source.rows = {}, {}


def make_table(source: Source) -> None:
    """Make the table anew, with another column."""
    source.columns = {"a": "INT64"}


LIVES: Final[Mapping[str, Mapping[int, tuple[Deed, ...]]]] = {
    "added": {3: (add("b", "INT64"),), 4: (write(4),), 7: (write(8, "2"),)},
    "quiet": {3: (add("b", "INT64", 6),)},
    "dropped": {3: (drop("m"),), 7: (write(8),)},
    "retyped": {3: (retype("m"),), 7: (write(8),)},
    "twice": {3: (retype("m"),), 6: (retype("m"),), 8: (write(8),)},
    "renewed": {2: (drop("m"),), 4: (add("m", "INT64", 3),), 8: (write(8),)},
    "fleeting": {4: (add("b", "STRING", 3),), 6: (drop("b"),), 7: (add("b", "INT64"),), 8: (write(8),)},
    "third": {
        2: (drop("m"), add("m", "INT64")),
        3: (write(4),),
        4: (drop("m"), add("m", "STRING", 6)),
        7: (write(8),),
    },
    "remade": {2: (end_table,), 4: (make_table, write(4), write(6, "2")), 7: (write(8), write(8, "3"))},
}
"""What happens at which steps, after rows were written at the first."""


def live(name: str, deeds: Mapping[int, tuple[Deed, ...]]) -> Source:
    """Return a source that has lived."""
    source = Source(name, {"a": "STRING", "m": "STRING"})
    for step in range(END + 1):
        for key in KEYS if step == 0 else ():
            write(int(key) + 10, key)(source)
        for deed in deeds.get(step, ()):
            deed(source)
        source.end_step()
    return source


def watch(lake: LakeSettings, *sources: Source) -> Pipeline:
    """Return a pipeline whose log is at the step `KNOWN`, of a source whose present is `COPIED`."""
    pipeline = make_pipeline(lake, (), copy_piece_rows=1)
    fake, by_name = source_of(pipeline), {source.name: source for source in sources}

    def look(micros: int) -> Look:
        found = [source.schema_at(micros) for source in sources if source.state_at(micros)[0]]
        return Look(micros, tuple(found), {}, {})

    def rows_at(table: str, micros: int) -> Iterator[pa.RecordBatch]:
        source = by_name[table]
        rows, schema = source.typed_rows_at(micros), table_arrow_schema(source.schema_at(micros))
        yield pa.RecordBatch.from_pylist(rows, schema)

    fake.look_at, fake.rows_at, fake.now_micros = look, rows_at, moment(COPIED) + 1
    fake.schemas = look(moment(KNOWN)).tables
    read_until(pipeline, KNOWN, *sources)
    return pipeline


def moment(step: int) -> int:
    """Return when a step happens."""
    return START + step * STEP


def read_until(pipeline: Pipeline, step: int, *sources: Source) -> None:
    """Let another process take what the stream has told until a step into the log."""
    due = [row for source in sources for at, row in source.records if at <= moment(step)]
    for source in sources:
        source.records = [(at, row) for at, row in source.records if at > moment(step)]
    feed(pipeline, moment(step), *due)


def tick(pipeline: Pipeline, spark: "SparkSession") -> Cut | None:
    """Do everything of a tick but the reading, as a process that has just begun."""
    pipeline.forget_tables()
    copy_tables(pipeline, spark)
    order_changes(pipeline, spark)
    merge_tables(pipeline, spark, pipeline.tables)
    return publish_cut(pipeline, spark)


@pytest.mark.parametrize("reads", [(3, 6, END), (END,)])
def test_a_copy_has_the_columns_of_its_moment(
    spark: "SparkSession", session_lake: LakeSettings, reads: tuple[int, ...]
) -> None:
    """Whatever the log knows of columns when it is planned, and comes to know while it goes on."""
    sources = [live(name, deeds) for name, deeds in LIVES.items()]
    pipeline = watch(session_lake, *sources)
    order_changes(pipeline, spark)
    assert copy_tables(pipeline, spark).unplanned == ()
    for step in reads:
        read_until(pipeline, step, *sources)
        tick(pipeline, spark)
    while copy_tables(pipeline, spark).is_going_on:
        tick(pipeline, spark)

    assert set(LIVES) == set(list_cuts(pipeline.lake)[-1].tables)
    for cut in list_cuts(pipeline.lake):
        for source in sources:
            assert_rows(pipeline, source, cut)
    assert check_fold(pipeline, spark, EVERYTHING).passed


def assert_rows(pipeline: Pipeline, source: Source, cut: Cut) -> None:
    """Compare a table at a cut with its source, in the columns that this had then."""
    if source.name not in cut.tables:
        return
    expected = source.typed_rows_at(cut.position_micros)
    names = ["id", *source.state_at(cut.position_micros)[0]]
    rows = rows_of(pipeline, source.name, cut.tables[source.name])
    found = [{name: row.get(name, "no such column") for name in names} for row in rows]
    assert (source.name, expected) == (source.name, sorted(found, key=lambda row: int(str(row["id"]))))


def test_a_table_is_copied_though_nothing_changes_any_more(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """No record tells of the column that it has got; the copy does, with all values."""
    source = live("quiet", LIVES["quiet"])
    pipeline = watch(session_lake, source)
    order_changes(pipeline, spark)
    feed(pipeline, moment(END))
    for _ in range(2):
        tick(pipeline, spark)

    assert_rows(pipeline, source, list_cuts(pipeline.lake)[-1])
    assert "b" in pipeline.stored("quiet").columns[-1].name
    assert check_fold(pipeline, spark, EVERYTHING).passed
