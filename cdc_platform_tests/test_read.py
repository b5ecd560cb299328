"""Reading at a cut: every way gives the same rows, and pinned cuts outlast everything else."""

import os
import pty
import re
import signal
import subprocess
import sys
import tracemalloc
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.types import LongType

from cdc_platform.duckdb_views import load_extensions
from cdc_platform.errors import CutNotFound, LibraryMissing, PipelineNotFound, SettingError, TableNotFound
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import fact, head
from cdc_platform.lake.commits.filters import equals
from cdc_platform.lake.commits.maintenance import expire_snapshots
from cdc_platform.lake.commits.snapshots import find_expendable
from cdc_platform.lake.state.cut_states import cut_states
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.lake.state.pins import pin_cut, unpin_cut
from cdc_platform.model.base.libraries import optional_library
from cdc_platform.model.base.progress_lines import report_lines
from cdc_platform.model.base.timestamps import to_datetime, to_rfc3339
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform.printing import progress_display
from cdc_platform.read import TablesAtCut, open_tables
from cdc_platform_tests.commands.invoking import run
from cdc_platform_tests.docs.code_blocks import BANK, Block, blocks_in
from cdc_platform_tests.docs.shown_commands import OF_READERS, run_commands
from cdc_platform_tests.pipeline.bank import SECOND, bank_pipeline, expected_balances, feed_cycle
from cdc_platform_tests.support.pipelines import START, found_table, run_steps
from cdc_platform_tests.yaml_files import bank_attributes, write_defs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG_AFTER = 4_000_000_000_000_000
COUNTS = """SELECT sum(balance), (SELECT count(*) FROM transfers), (SELECT count(*) FROM accounts__history)
FROM accounts"""
FIRST = "SELECT id, balance FROM accounts ORDER BY id LIMIT 1"
NOT_FINITE = """SELECT 'nan'::DOUBLE AS a, ['-inf'::FLOAT, 1.5] AS b, 'say "NaN": Infinity' AS c"""
ENDLESS = "SELECT count(*) FROM range(1_000_000_000_000) a, range(1_000_000) b WHERE a.range + b.range > 0"
HISTORY = {"accounts": TableOptions(history=True)}


def run_cycles(pipeline: Pipeline, spark: "SparkSession", *numbers: int) -> None:
    """Run some cycles of the bank; each one's merge leaves deletion vectors on the last one's."""
    for number in numbers:
        feed_cycle(pipeline, number)
        run_steps(pipeline, spark)


@pytest.fixture(scope="module")
def bank(spark: "SparkSession", session_lake: LakeSettings) -> Pipeline:
    """The bank after three cuts, with a history of its accounts."""
    pipeline = bank_pipeline(session_lake, **HISTORY)
    run_cycles(pipeline, spark, 1, 2, 3)
    return pipeline


def balances_at(cut: TablesAtCut) -> dict[int, int]:
    """Return the balances that a cut shows."""
    return {row["id"]: row["balance"] for row in cut.arrow("accounts").to_pylist()}


@pytest.mark.integration
def test_all_ways_of_reading_agree_at_every_cut(spark: "SparkSession", bank: Pipeline) -> None:
    """Arrow, Polars, DuckDB and Spark see the same rows of tables and history, deletion vectors included."""
    snapshot = head(found_table(bank, "accounts"))
    assert snapshot is not None
    assert int(fact(snapshot, "total-position-deletes") or 0) > 3
    tables = open_tables(bank.settings.lake, bank.name)
    for number in (1, 2, 3):
        cut = tables.at(number)
        assert cut.names == ("accounts", "transfers", "accounts__history")
        assert expected_balances(number) == balances_at(cut)
        for name in cut.names:
            expected = sorted(map(repr, cut.arrow(name).to_pylist()))
            assert expected == sorted(map(repr, cut.polars(name).to_dicts()))
            assert expected == sorted(map(repr, cut.spark(spark, name).toArrow().to_pylist()))
        counted = cut.duckdb().sql(COUNTS).fetchall()
        assert [(300, number - 1, cut.arrow("accounts__history").num_rows)] == counted


@pytest.mark.integration
def test_engines_on_their_own_read_the_newest_cut(bank: Pipeline) -> None:
    """pyiceberg, Polars and DuckDB see what a cut shows when they open the table by themselves."""
    table = load_catalog("lake", **bank.settings.lake.pyiceberg_properties()).load_table(
        f"{bank.name}.accounts"
    )
    expected = balances_at(open_tables(bank.settings.lake, bank.name).at())
    names = ("id", "balance")
    assert expected == dict(pl.scan_iceberg(table).select(names).collect().iter_rows())
    rows = table.scan(selected_fields=names).to_arrow().to_pylist()
    assert expected == {row["id"]: row["balance"] for row in rows}
    with duckdb.connect() as connection:
        load_extensions(connection)
        scan = f"SELECT id, balance FROM iceberg_scan('{table.metadata_location}')"
        assert expected == dict(connection.sql(scan).fetchall())


@pytest.mark.integration
@pytest.mark.parametrize("block", [*blocks_in(BANK), *OF_READERS], ids=lambda block: block.place)
def test_what_pages_show_runs(
    spark: "SparkSession", bank: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: Block
) -> None:
    """Python, SQL and commands of pages about reading run as they stand, on other cuts and another name."""
    (tmp_path / "examples" / "my_bank").mkdir(parents=True)
    attributes = bank_attributes(name=bank.name, lake={"path": bank.settings.lake.path})
    write_defs(tmp_path / "examples" / "my_bank", attributes)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cdc_platform.commands.reading.cuts.start_spark", lambda _settings: spark)
    moment = to_rfc3339(START + 3 * SECOND)
    if block in OF_READERS:
        run_commands(block, tmp_path, {"17": "2", "2026-01-31T08:00:00Z": moment})
    elif block.language == "sql":
        tables = open_tables(bank.settings.lake, bank.name).at()
        tables.duckdb().sql(block.text.replace("bank.", "")).fetchall()
    else:
        text = block.text.replace("at(17)", "at(2)").replace('"bank.', f'"{bank.name}.')
        exec(text.replace("2026-01-31T08:00:00Z", moment), {"session": spark})  # noqa: S102  our own pages


@pytest.mark.integration
def test_a_cut_is_found_by_number_or_moment(bank: Pipeline) -> None:
    """A moment gives the newest cut at or before it; each kind of missing cut has its own error."""
    tables = open_tables(bank.settings.lake, bank.name)
    first_micros = START + 2 * SECOND - 1
    assert (3, to_datetime(first_micros + 2 * SECOND)) == (tables.at().cut.cut, tables.at().position)
    assert tables.at(moment=to_rfc3339(first_micros + SECOND - 1)).cut.cut == 1
    assert tables.at(moment=to_datetime(first_micros)).cut.cut == 1
    rows = tables.at(1).arrow("accounts", columns=["id"], where="balance = 100 and id > 1").to_pylist()
    assert sorted(row["id"] for row in rows) == [2, 3]
    assert pl.DataFrame({"id": [1]}).equals(tables.at().polars("accounts", columns=["id"], where="id = 1"))
    with pytest.raises(CutNotFound, match="No cut has this number: 9"):
        tables.at(9)
    with pytest.raises(CutNotFound, match="at or before this moment"):
        tables.at(moment="2026-01-01T00:00:00Z")
    with pytest.raises(TableNotFound, match="It has: accounts, transfers"):
        tables.at().arrow("acounts")
    with pytest.raises(SettingError, match="must look like 2026"):
        tables.at(moment="yesterday")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("sql", "form", "expected"),
    [
        (FIRST, "csv", "id,balance\n1,100\n"),
        (FIRST, "json", '[\n\t{"id":1,"balance":100}\n]\n'),
        (NOT_FINITE, "json", '[\n\t{"a":"NaN","b":["-Infinity",1.5],"c":"say \\"NaN\\": Infinity"}\n]\n'),
        (FIRST, "table", "│     1 │     100 │"),
        ("SHOW TABLES", "csv", "name\naccounts\naccounts__history\ntransfers\n"),
    ],
)
def test_the_command_queries_a_cut(
    bank: Pipeline, tmp_path: Path, sql: str, form: str, expected: str
) -> None:
    """`query` prints the rows of SQL at the cut that was asked for, in the form that was asked for."""
    attributes = bank_attributes(name=bank.name, lake={"path": bank.settings.lake.path})
    code, output, errors = run("query", write_defs(tmp_path, attributes), sql, "--cut", "1", "--format", form)
    assert code == 0
    assert f"cut 1 at {to_rfc3339(START + 2 * SECOND - 1)}" in errors
    assert expected in output


@pytest.mark.integration
def test_a_large_text_next_to_such_a_number_takes_little_memory(bank: Pipeline, tmp_path: Path) -> None:
    """Rows that are made valid JSON are looked at once, without a way back that grows with their texts."""
    attributes = bank_attributes(name=bank.name, lake={"path": bank.settings.lake.path})
    sql, characters = "SELECT repeat('x', 1_000_000) AS a, 'nan'::DOUBLE AS b", 1_000_000
    tracemalloc.start()
    try:
        code, output, _ = run("query", write_defs(tmp_path, attributes), sql, "--format", "json")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert code == 0
    assert output == '[\n\t{"a":"' + characters * "x" + '","b":"NaN"}\n]\n'
    assert peak < 40 * characters


@pytest.mark.integration
@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT balanse FROM accounts", 'Setting `SQL` cannot be run: .*"balanse" not found'),
        ("FROM nothing", "\nThe cut has the tables accounts"),
        ("FROM account", "Did you mean .*accounts"),
        ("CREATE TABLE t (id INT)", "Setting `SQL` must be a query"),
        ("COPY accounts TO 'accounts.csv'", "Setting `SQL` must be a query"),
    ],
)
def test_sql_that_cannot_be_run_is_an_error(
    bank: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, message: str
) -> None:
    """DuckDB's words say what is wrong, without a traceback; SQL that gives no rows is not begun."""
    monkeypatch.chdir(tmp_path)
    attributes = bank_attributes(name=bank.name, lake={"path": bank.settings.lake.path})
    code, _, errors = run("query", write_defs(tmp_path, attributes), sql)
    assert code == 1
    assert re.search(message, errors)
    assert not (tmp_path / "accounts.csv").exists()


@pytest.mark.integration
@pytest.mark.parametrize(
    ("command", "arguments", "step"),
    [
        ("query", ("SELECT sum(range) FROM range(200_000_000)",), "query"),
        ("explain", ("accounts", "1"), "search"),
    ],
)
def test_what_takes_long_says_that_it_runs(
    bank: Pipeline,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    arguments: tuple[str, ...],
    step: str,
) -> None:
    """Nothing is silent for seconds; here it is for hundredths of one."""
    monkeypatch.setattr(progress_display, "report_lines", partial(report_lines, every_s=0.02))
    attributes = bank_attributes(name=bank.name, lake={"path": bank.settings.lake.path})
    code, _, errors = run(command, write_defs(tmp_path, attributes), *arguments)
    assert (code, f"\n{step}" in f"\n{errors}") == (0, True), errors


def test_a_terminal_gets_no_parquet(tmp_path: Path) -> None:
    """Bytes that a terminal would obey are for a file or a pipe."""
    controller, terminal = pty.openpty()
    command = (sys.executable, "-m", "cdc_platform.cli", "query", write_defs(tmp_path), "SELECT 1")
    ended = subprocess.run(
        (*command, "--format", "parquet"), stdout=terminal, stderr=subprocess.PIPE, text=True, check=False
    )
    for end in (controller, terminal):
        os.close(end)
    assert (ended.returncode, "write it to a file" in ended.stderr) == (2, True)


@pytest.mark.integration
@pytest.mark.parametrize("form", ["table", "csv"])
def test_ctrl_c_ends_a_query(bank: Pipeline, tmp_path: Path, form: str) -> None:
    """A query that takes too long ends at once, with the exit code of a signal and without a traceback."""
    attributes = bank_attributes(name=bank.name, lake={"path": bank.settings.lake.path})
    command = (sys.executable, "-m", "cdc_platform.cli", "query", write_defs(tmp_path, attributes), ENDLESS)
    with subprocess.Popen((*command, "--format", form), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "cut 3 at" not in (text := process.stderr.readline()):
            assert text  # the progress of a slow start
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == "Stopped.\n"
    assert process.returncode == 128 + signal.SIGINT


@pytest.mark.integration
def test_a_pinned_cut_outlasts_expiry_and_compaction(
    spark: "SparkSession", session_lake: LakeSettings, bank: Pipeline
) -> None:
    """When all other old cuts have expired it reads as before; unpinned, it goes like them."""
    pipeline = bank  # the last test that reads it
    assert pin_cut(pipeline.lake, spark, 2).is_pinned
    before = versions_of(pipeline)
    assert pin_cut(pipeline.lake, spark, 2).is_pinned
    assert before == versions_of(pipeline)
    run_cycles(pipeline, spark, 4)
    maintain_lake(pipeline, spark, thorough=True)
    expire_everything(pipeline, spark)
    states = {state.cut.cut: state for state in cut_states(pipeline.lake)}
    assert [number for number, state in states.items() if state.is_pinned] == [2]
    assert [number for number in (1, 2, 3) if states[number].is_readable] == [2]
    tables = open_tables(session_lake, pipeline.name)
    assert expected_balances(2) == balances_at(tables.at(2))
    assert tables.at(2).arrow("accounts__history").num_rows == 6
    assert tables.at(moment=to_datetime(states[3].cut.position_micros)).cut.cut == 2
    with pytest.raises(CutNotFound, match="these tables lack its snapshots: accounts"):
        tables.at(1)
    with pytest.raises(CutNotFound, match="can no longer be read"):
        pin_cut(pipeline.lake, spark, 3)
    assert not unpin_cut(pipeline.lake, spark, 2).is_pinned
    expire_everything(pipeline, spark)
    assert not {state.cut.cut: state for state in cut_states(pipeline.lake)}[2].is_readable


def expire_everything(pipeline: Pipeline, spark: "SparkSession") -> None:
    """Let every snapshot expire that no branch or tag keeps: maintenance itself keeps the newest ones."""
    for name in pipeline.lake_tables:
        old = find_expendable(found_table(pipeline, name), LONG_AFTER, keep_newest=1)
        expire_snapshots(spark, f"{pipeline.name}.{name}", old)


def versions_of(pipeline: Pipeline) -> dict[str, Any]:
    """Return the versions of all tables, which a commit of any kind would change."""
    return {name: found_table(pipeline, name).metadata_location for name in pipeline.lake_tables}


def test_a_lake_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """A reader makes no folder, no catalog and no table, and says what is missing."""
    with pytest.raises(PipelineNotFound, match="There is no lake at"):
        open_tables(write_defs(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["defs.yaml"]
    (tmp_path / "lake").mkdir()
    with pytest.raises(PipelineNotFound, match="`bank` has not run yet"):
        open_tables(write_defs(tmp_path, bank_attributes()))
    with pytest.raises(SettingError, match="`pipeline` is needed"):
        open_tables(LakeSettings(str(tmp_path / "lake")))


@pytest.fixture(scope="module")
def one_table(tmp_path_factory: pytest.TempPathFactory) -> TablesAtCut:
    """A cut of one table, whose column `note` was renamed afterwards, and another one got its name."""
    lake = Lake(LakeSettings(str(tmp_path_factory.mktemp("lake"))), "bank")
    rows = pa.table({"id": [1, 2], "balance": [90, 110], "note": ["a", "b"]})
    accounts = lake.catalog.create_table("bank.accounts", rows.schema)
    accounts.append(rows)
    snapshot = head(accounts)
    assert snapshot is not None
    with accounts.update_schema() as update:
        update.rename_column("note", "remark")
    with accounts.update_schema() as update:
        update.add_column("note", LongType())
    return TablesAtCut(lake, Cut(1, START, 1, {"accounts": snapshot.snapshot_id}, START))


@pytest.mark.parametrize(
    ("where", "columns", "expected"),
    [
        ("balance > 100", ["id"], [{"id": 2}]),
        (equals("id", 1), ["id", "balance"], [{"id": 1, "balance": 90}]),
        ("note = 'a'", ["note"], [{"note": "a"}]),  # as it was called at the cut
        (None, None, [{"id": 1, "balance": 90, "note": "a"}, {"id": 2, "balance": 110, "note": "b"}]),
    ],
)
def test_rows_and_columns_are_chosen(
    one_table: TablesAtCut, where: Any, columns: list[str] | None, expected: list[dict[str, Any]]
) -> None:
    """Conditions are texts or expressions, and names are those of the cut."""
    assert expected == one_table.arrow("accounts", where=where, columns=columns).to_pylist()


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"where": "balance >"}, "`where` must be a condition such as .*, and not: balance >$"),
        ({"where": ""}, "`where` must be a condition"),
        (
            {"where": "owner like '%a'"},
            "`where` must be a condition such as .*'A%'.*, and not: owner like '%a'$",
        ),
        (
            {"where": "balanse > 1"},
            r"`where` does not fit the columns of `accounts` \(id long, balance long, ",
        ),
        ({"where": "balance = 'much'"}, "`where` does not fit .*much into a long"),
        ({"where": equals("balanse", 1)}, "`where` does not fit"),
        ({"where": "remark = 'a'"}, "`where` does not fit"),  # not its name at the cut
        ({"columns": ["id", "balanse"]}, "`columns` must name columns of `accounts` .*, and not: balanse$"),
        ({"columns": ["ID"]}, "and not: ID$"),
    ],
)
def test_a_choice_that_does_not_fit_is_an_error(
    one_table: TablesAtCut, chosen: dict[str, Any], message: str
) -> None:
    """A filter that cannot be parsed or names no column is an error that lists the columns."""
    with pytest.raises(SettingError, match=message):
        one_table.arrow("accounts", **chosen)


def test_duckdb_reads_a_cut_as_it_was(one_table: TablesAtCut) -> None:
    """Columns have the names and values of the cut, and a query reads only what it asks for."""
    connection = one_table.duckdb()
    assert connection.sql("FROM accounts ORDER BY id").fetchall() == [(1, 90, "a"), (2, 110, "b")]
    plan = connection.sql("EXPLAIN SELECT id FROM accounts WHERE balance > 100").fetchall()[0][1]
    assert "ICEBERG_SCAN" in plan
    assert "Filters: balance>100" in plan
    assert "note" not in plan


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Polars or DuckDB the error says what to install."""
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(LibraryMissing, match=r"pip install 'cdc_platform\[polars\]'"):
        optional_library("polars", "polars")
