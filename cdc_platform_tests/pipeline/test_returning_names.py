"""Names that come up again at the source: in another case, or as those of what the lake has set aside."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.table_checks import check_tables_equal_log
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform_tests.pipeline.evolving import STEP, EvolvingSource
from cdc_platform_tests.support.changing.evolving_pipelines import follow, live_rows, read_until
from cdc_platform_tests.support.pipelines import START, rows_of, run_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

WHOLE = ValueCaptureType.NEW_ROW


def write(source: EvolvingSource, number: int) -> None:
    """Let a row be written with all columns that the table has."""
    source.write(str(number), number, WHOLE, tuple(source.columns))


def end_steps(*sources: EvolvingSource) -> None:
    """Let time pass."""
    for source in sources:
        source.end_step()


def catch_up(pipeline: Pipeline, spark: "SparkSession", *sources: EvolvingSource) -> int:
    """Let a cycle read all that has happened, and return its moment."""
    now = START + (sources[0].step - 1) * STEP
    read_until(pipeline, now, *sources)
    run_steps(pipeline, spark)
    return now


@dataclass
class Names:
    """Tables whose columns go and come again, and what has been read of them.

    Of `cased` a column comes back in another case, of the first one with a cycle between; of `taken` a
    column gets the name of what was set aside.
    """

    pipeline: Pipeline
    cased: list[EvolvingSource]
    taken: list[EvolvingSource]
    now: int = 0


@pytest.fixture(scope="module")
def names(spark: "SparkSession", session_lake: LakeSettings) -> Names:
    """All tables at the end."""
    cased = [EvolvingSource(name, {"Note": "STRING", "b": "STRING"}) for name in ("parted", "at_once")]
    taken = [EvolvingSource(name, {"note": "STRING", "b": "STRING"}) for name in ("INT64", "STRING")]
    sources = (*cased, *taken)
    pipeline = follow(session_lake, *sources)
    for source in (cased[0], *taken):
        write(source, 1)
    end_steps(*sources)
    catch_up(pipeline, spark, *sources)

    write(cased[1], 1)
    end_steps(*sources)
    for source in sources:
        source.alter("drop", "Note" if source in cased else "note", "")
    end_steps(*sources)
    for source in sources:
        source.alter("add", "note", "INT64") if source in cased else None
        write(source, 2)
    end_steps(*sources)
    catch_up(pipeline, spark, *sources)

    for source in taken:
        source.alter("add", "note", source.name)
        write(source, 3)
    end_steps(*sources)
    catch_up(pipeline, spark, *sources)
    for source in taken:
        source.alter("add", "note__string", "STRING")
        write(source, 4)
    end_steps(*sources)
    return Names(pipeline, cased, taken, catch_up(pipeline, spark, *sources))


def test_a_column_comes_back_in_another_case(names: Names) -> None:
    """It is another column without the earlier values, which are set aside."""
    for source in names.cased:
        rows = rows_of(names.pipeline, source.name)
        stored = {row["id"]: (row["Note__string"], row["note"]) for row in rows}
        assert (source.name, {1: ("v1", None), 2: (None, 2)}) == (source.name, stored)


def test_a_new_column_has_the_name_of_what_was_set_aside(names: Names) -> None:
    """It has its own values only; the earlier ones are in a column of another name."""
    for source in names.taken:
        aside = [row["note__string_2"] for row in rows_of(names.pipeline, source.name)]
        assert (source.name, ["v1", None, None, None]) == (source.name, aside)


def test_the_tables_equal_source_and_log(names: Names, spark: "SparkSession") -> None:
    """They do so when they are recreated from the log, too."""
    result = check_tables_equal_log(names.pipeline, spark, EVERYTHING)
    assert result.passed, result.summary
    for source in (*names.cased, *names.taken):
        expected = (source.name, source.typed_rows_at(names.now))
        assert expected == (source.name, live_rows(names.pipeline, source, names.now))
        rebuild_table(names.pipeline, spark, source.name)
        assert expected == (source.name, live_rows(names.pipeline, source, names.now))
