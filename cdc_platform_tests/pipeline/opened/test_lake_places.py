"""Source tables that ask for one place in the lake: one has it for good, and no other table waits for it."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_platform.errors import SettingError, TableNotFound
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.schema.table_options import IS_CURRENT, TableOptions
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.source_checks import check_schema
from cdc_platform.pipeline.checks.table_checks import check_tables_equal_log
from cdc_platform.pipeline.on_demand.explanation import explain_row
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.on_demand.status import read_status
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform_tests.pipeline.evolving import STEP, EvolvingSource
from cdc_platform_tests.support.changing.evolving_pipelines import follow, live_rows, read_until
from cdc_platform_tests.support.cycles import failed_checks, found_rows, sync
from cdc_platform_tests.support.datastream.files import MadeEvent, StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline
from cdc_platform_tests.support.pipelines import START, rows_of, run_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def write(folder: StreamFolder, position: int, *tables: str) -> None:
    """Write a row into each of some tables; the row shows the table and the position."""
    for table in tables:
        row = {"id": position, "v": f"{table}{position}"}
        folder.write([MadeEvent(f"{table}-{position}", table, "INSERT", position, row)])


def having(pipeline: Pipeline, tables: tuple[str, ...] | None) -> Pipeline:
    """Return a pipeline whose setting `tables` is another one."""
    return open_pipeline(replace(pipeline.settings, tables=tables))


def values(pipeline: Pipeline, table: str) -> list[str]:
    """Return what a table has, by key."""
    return [row["v"] for row in found_rows(pipeline, table)]


def test_of_two_names_that_differ_in_case_one_is_left_out(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """It is reported, the log has its changes, and the first one continues after restarts and a rebuild.

    So it is whether both come up in one cycle (`Notes`) or one after the other (`Users`).
    """
    folder = StreamFolder(tmp_path)
    pipeline = make_pipeline(session_lake, tmp_path)
    write(folder, 1, "Users", "other")
    pipeline = sync(pipeline, spark)
    write(folder, 2, "users", "other", "Notes")
    write(folder, 3, "notes")
    pipeline = sync(pipeline, spark)
    write(folder, 4, "Users", "users", "other", "Notes", "notes")
    pipeline = sync(pipeline, spark)
    rebuild_table(pipeline, spark, "Users")
    assert values(pipeline, "Users") == ["Users1", "Users4"]
    assert values(pipeline, "Notes") == ["Notes2", "Notes4"]
    assert values(pipeline, "other") == ["other1", "other2", "other4"]
    assert pipeline.lake.table_names() == ("Notes", "Users", "other")
    logged = pipeline.lake.system_table(LOG).scan().to_arrow()["table_name"].to_pylist()
    for absent, present in (("users", "Users"), ("notes", "Notes")):
        assert logged.count(absent) == 2
        text = f"`{absent}` is not in the lake: `{present}` has that name in the lake"
        assert [line for line in read_status(pipeline).findings if line.startswith(text)]
        assert text in check_schema(pipeline, spark, EVERYTHING).summary
    assert failed_checks(pipeline, spark) == {}
    assert len(explain_row(pipeline, "Users", "1").provenance.steps) == 1
    with pytest.raises(TableNotFound, match="It has: Notes, Users, other"):
        explain_row(pipeline, "users", "2")


def test_what_the_lake_has_keeps_its_place(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """The other table was known first, but the setting named this one, and then named none any more."""
    folder = StreamFolder(tmp_path)
    pipeline = having(make_pipeline(session_lake, tmp_path), ("users",))
    write(folder, 1, "Users")
    pipeline = sync(pipeline, spark)
    write(folder, 2, "users")
    pipeline = having(sync(pipeline, spark), None)
    write(folder, 3, "Users", "users")
    pipeline = sync(pipeline, spark)
    assert values(pipeline, "users") == ["users2", "users3"]
    assert pipeline.lake.table_names() == ("users",)
    assert failed_checks(pipeline, spark) == {}
    for tables in (("Users", "users"), ("Users",)):
        with pytest.raises(SettingError, match="`Users` and `users`"):
            _ = having(pipeline, tables).tables


def test_a_table_that_is_called_like_a_history(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """The one that the lake has stays unchanged, and the other is reported; also when the option is removed.

    Of `t` the history is there first, and of `u` the table that is called like its history.
    """
    folder = StreamFolder(tmp_path)
    options = {name: TableOptions(history=True) for name in "tu"}
    pipeline = make_pipeline(session_lake, tmp_path, {"t": options["t"]})
    write(folder, 1, "t__history", "t", "u", "u__history")
    pipeline = sync(pipeline, spark)
    write(folder, 2, "t__history", "t", "u", "u__history")
    pipeline = sync(replace(pipeline, settings=replace(pipeline.settings, table_options=options)), spark)
    assert [row["v"] for row in found_rows(pipeline, "t__history") if row[IS_CURRENT]] == ["t1", "t2"]
    assert values(pipeline, "u") == ["u1", "u2"]
    assert values(pipeline, "u__history") == ["u__history1", "u__history2"]
    findings = pipeline.findings(pipeline.schema_history)
    for text in ("`t__history` is not in the lake", "The history of `u` is not kept"):
        assert [line for line in findings if line.startswith(text)], findings
    assert failed_checks(pipeline, spark) == {}
    plain = replace(pipeline, settings=replace(pipeline.settings, table_options={}))
    write(folder, 3, "t__history", "t")
    pipeline = sync(plain, spark)
    assert values(pipeline, "t") == ["t1", "t2", "t3"]
    assert values(pipeline, "t__history") == ["t1", "t2"]
    with pytest.raises(TableNotFound, match=r"It has: t, u, u__history$"):
        explain_row(pipeline, "t__history", "1")


def test_a_table_that_takes_the_name_of_a_dropped_one(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """With a change stream, too, the lake keeps the dropped one, reports the new one, and continues."""
    notes, old, new = (EvolvingSource(name, columns={}) for name in ("notes", "Tags", "tags"))
    pipeline = follow(session_lake, notes, old, new)
    for number, present in enumerate(((notes, old), (notes, old), (notes, new), (notes, new))):
        for source in (notes, old, new):
            source.columns = {"a": "STRING"} if source in present else {}
            source.rows = source.rows if source in present else {}
        for source in present:
            source.write(str(number), number + 1, ValueCaptureType.NEW_ROW, ("a",))
        for source in (notes, old, new):
            source.end_step()
        read_until(pipeline, START + number * STEP, notes, old, new)
        cut = run_steps(pipeline, spark)
        assert {*cut.tables} == {"Tags", "notes"}
    now = START + 3 * STEP
    assert live_rows(pipeline, notes, now) == notes.typed_rows_at(now)
    assert [row["a"] for row in rows_of(pipeline, "Tags")] == ["v1", "v2"]
    text = " ".join(read_status(pipeline).findings)
    assert "`tags` is not in the lake: `Tags` has that name in the lake" in text
    assert "`Tags` was dropped" in text
    assert check_tables_equal_log(pipeline, spark, EVERYTHING).passed
