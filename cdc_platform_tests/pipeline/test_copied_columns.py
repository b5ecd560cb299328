"""Copies of tables whose columns change: they have the columns of their moment, whatever the log knows."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from cdc_platform.lake.catalog.settings import LakeSettings
from cdc_platform.lake.state.copies import load_plans
from cdc_platform.lake.state.cuts import Cut, list_cuts
from cdc_platform.model.schema.schema_reads import Look
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.table_checks import check_fold
from cdc_platform.pipeline.copying import copy
from cdc_platform.pipeline.copying.copy import copy_tables
from cdc_platform.pipeline.core.pipeline import Pipeline
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing.publish import publish_cut
from cdc_platform.sources.spanner.copying.snapshot import table_arrow_schema
from cdc_platform_tests.pipeline.evolving import STEP, Source, value_of
from cdc_platform_tests.pipelines import START, feed, make_pipeline, rows_of, source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Deed = Callable[[Source], None]

KEYS: Final = "12346"
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
    """Recreate the table, with another column."""
    source.columns = {"a": "INT64"}


NOTES: Final[Mapping[int, tuple[Deed, ...]]] = {
    2: (drop("renewed"), drop("third"), add("third", "INT64")),
    3: (drop("dropped"), retype("retyped"), retype("twice"), write(4)),
    4: (
        add("added", "INT64", 4),
        add("renewed", "INT64", 3),
        add("fleeting", "STRING", 3),
        drop("third"),
        add("third", "STRING", 6),
    ),
    6: (drop("fleeting"), retype("twice")),
    7: (add("fleeting", "INT64"), write(8)),
    8: (write(8, "2"),),
}
"""What happens at which steps to a table with rows; its columns are named after what befalls them."""
REMADE: Final[Mapping[int, tuple[Deed, ...]]] = {
    2: (end_table,),
    4: (make_table, write(4), write(6, "2")),
    8: (write(8), write(8, "3")),
}


def live(name: str, deeds: Mapping[int, tuple[Deed, ...]]) -> Source:
    """Return a source that has lived."""
    names = ("a", "dropped", "retyped", "twice", "renewed", "third")
    source = Source(name, dict.fromkeys(names, "STRING"))
    for step in range(END + 1):
        for key in KEYS if step == 0 else ():
            write(int(key) + 10, key)(source)
        for deed in deeds.get(step, ()):
            deed(source)
        source.end_step()
    return source


def watch(lake: LakeSettings, *sources: Source) -> Pipeline:
    """Return a pipeline whose log is at the step `KNOWN`, of a source whose present is `COPIED`."""
    pipeline = make_pipeline(lake, (), copy_chunk_rows=len(KEYS) - 1)
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


def cycle(pipeline: Pipeline, spark: "SparkSession") -> Cut | None:
    """Do everything of a cycle but the reading, as a process that has just begun."""
    pipeline.forget_tables()
    copy_tables(pipeline, spark)
    order_changes(pipeline, spark)
    merge_tables(pipeline, spark, pipeline.tables)
    return publish_cut(pipeline, spark)


# A table that is recreated between two looks leaves no trace of it.
@pytest.mark.parametrize(
    ("lives", "reads"), [({"notes": NOTES, "remade": REMADE}, (3, END)), ({"notes": NOTES}, (END,))]
)
def test_a_copy_has_the_columns_of_its_moment(
    spark: "SparkSession",
    session_lake: LakeSettings,
    monkeypatch: pytest.MonkeyPatch,
    lives: Mapping[str, Mapping[int, tuple[Deed, ...]]],
    reads: tuple[int, ...],
) -> None:
    """Whatever the log knows of them when it is planned, and comes to know while it goes on; also killed."""
    sources = [live(name, deeds) for name, deeds in lives.items()]
    pipeline = watch(session_lake, *sources)
    order_changes(pipeline, spark)
    with monkeypatch.context() as patch:
        patch.setattr(copy, "copy_chunks", _die)
        with pytest.raises(KeyboardInterrupt):
            copy_tables(pipeline, spark)
    for step in reads:
        read_until(pipeline, step, *sources)
        cycle(pipeline, spark)
    cycles = (publish_cut(pipeline, spark) if turn == 0 else cycle(pipeline, spark) for turn in range(3))
    cut = next(cut for cut in cycles if cut is not None and len(cut.tables) == len(sources))

    assert {moment(COPIED)} == {plan.position_micros for plan in load_plans(pipeline.lake).values()}
    for source in sources:
        assert_rows(pipeline, source, cut)
    assert check_fold(pipeline, spark, EVERYTHING).passed


def _die(*_args: object) -> None:
    raise KeyboardInterrupt


def assert_rows(pipeline: Pipeline, source: Source, cut: Cut) -> None:
    """Compare a table at a cut with its source, in the columns that this had then."""
    expected = source.typed_rows_at(cut.position_micros)
    names = ["id", *source.state_at(cut.position_micros)[0]]
    rows = rows_of(pipeline, source.name, cut.tables[source.name])
    found = [{name: row.get(name, "no such column") for name in names} for row in rows]
    assert (source.name, expected) == (source.name, sorted(found, key=lambda row: int(str(row["id"]))))


def test_a_table_is_copied_though_nothing_changes_any_more(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """No record names the added column; a copy that starts over has it, with all values."""
    source = live("notes", {3: (add("added", "INT64", 6), retype("retyped"))})
    pipeline = watch(session_lake, source)
    fake = source_of(pipeline)
    order_changes(pipeline, spark)
    fake.plans.expiring, fake.now_micros = {"notes"}, moment(KNOWN + 1) + 1
    assert copy_tables(pipeline, spark).rows == len(KEYS) - 1
    fake.now_micros = moment(COPIED) + 1
    feed(pipeline, moment(END))
    for _ in range(3):
        cycle(pipeline, spark)

    assert_rows(pipeline, source, list_cuts(pipeline.lake)[-1])
    assert "added" in {column.name for column in pipeline.table("notes").columns}
    assert check_fold(pipeline, spark, EVERYTHING).passed
