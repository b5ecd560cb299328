"""`cdc-platform query`: SQL over all tables of one cut."""

import re
import sys
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import click

from cdc_platform.commands.options import DEFS, NAME, CommandOnDefs, examples
from cdc_platform.errors import SettingError
from cdc_platform.model.base.declared_settings import micros_of_setting
from cdc_platform.model.base.timestamps import to_datetime, to_rfc3339
from cdc_platform.printing.lines import FOOTER, print_line, print_text
from cdc_platform.printing.progress_display import shown_step

if TYPE_CHECKING:
    import duckdb

TABLE: Final = "table"
PARQUET: Final = "parquet"
JSON: Final = "json"
_COPIES: Final = {"csv": "FORMAT csv, HEADER", JSON: "FORMAT json, ARRAY", PARQUET: "FORMAT parquet"}
# Possessive: the way back through a large text would take a hundred times its memory.
_TEXT_OR_NOT_FINITE: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|NaN|-?Infinity')


@click.command(
    cls=CommandOnDefs,
    epilog=examples(
        'query examples/my_bank/defs.yaml "SELECT sum(balance) FROM accounts"',
        'query examples/my_bank/defs.yaml "FROM accounts" --cut 17 --format csv',
        'query examples/my_bank/defs.yaml "FROM transfers" --at 2026-01-31T08:00:00Z --format parquet',
    ),
)
@DEFS
@click.argument("sql")
@NAME
@click.option("--cut", type=int, metavar="N", help="Query cut N instead of the newest one.")
@click.option("--at", "moment", metavar="TIME", help="Query the newest cut at or before TIME (RFC 3339).")
@click.option(
    "--format",
    "form",
    type=click.Choice((TABLE, *_COPIES)),
    default=TABLE,
    show_default=True,
    help="Output format; a table shows only some of many rows.",
)
def query(defs: Path, sql: str, name: str | None, cut: int | None, moment: str | None, form: str) -> None:
    """Run SQL over the tables of a pipeline, all at one cut.

    DuckDB runs it, without Spark or a JVM, and reads only the files, columns and rows that the SQL needs.
    Tables have their names at the source, such as `accounts` or `public.orders`, and those of the lake,
    which `status` shows. The pipeline may run at the same time: new cuts do not change the result.
    """
    from cdc_platform.read import open_tables

    if cut is not None and moment is not None:
        raise click.UsageError("Choose one of --cut and --at.")
    at = None if moment is None else to_datetime(micros_of_setting("--at", moment))
    if form == PARQUET and sys.stdout.isatty():
        raise click.UsageError("A terminal cannot show Parquet: write it to a file, `> rows.parquet`.")
    with shown_step("tables of the cut"):
        tables = open_tables(defs, name).at(cut, moment=at)
        print_line(f"cut {tables.cut.cut} at {to_rfc3339(tables.cut.position_micros)}", err=True)
        connection = tables.duckdb()
    _run(connection, sql, form)


def _run(connection: "duckdb.DuckDBPyConnection", sql: str, form: str) -> None:
    """Run SQL and print its rows.

    Raises:
        SettingError: DuckDB rejects the SQL.
        KeyboardInterrupt: Ctrl-C has interrupted the query.
    """
    import duckdb

    try:
        with TemporaryDirectory() as folder:
            # DuckDB would truncate a file to which the standard output is appended.
            file = Path(folder) / "rows"
            with shown_step("query"):
                table = _fetch(connection, sql, form, file)
            if table is not None:
                print_text(table)
            else:
                _print_file(file, form)
    except duckdb.Error as error:
        problem = str(error)
        if problem.startswith("Catalog Error: Table"):
            # DuckDB suggests its own tables if the cut has none with a similar name.
            names = (name for (name,) in connection.execute("SHOW TABLES").fetchall())
            problem = f"{problem}\nThe cut has the tables {', '.join(names)}"
        raise SettingError("SQL", f"cannot be run: {problem}") from error
    except RuntimeError as error:
        # DuckDB's error for a query that Ctrl-C interrupted.
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        raise


def _fetch(connection: "duckdb.DuckDBPyConnection", sql: str, form: str, file: Path) -> str | None:
    """Return the rows as a table for people, or write them to a file in another format."""
    from duckdb import ExpectedResultType

    statements = connection.extract_statements(sql)
    # A pivot is several statements. DuckDB runs those that give no rows at once.
    if not statements or statements[-1].expected_result_type != [ExpectedResultType.QUERY_RESULT]:
        raise SettingError("SQL", "must be a query, such as `SELECT count(*) FROM accounts`")
    rows_of_the_query: Any = connection.sql(sql)
    if form == TABLE:
        return str(rows_of_the_query)
    # SQL finds the variable; a view would be among the tables that SQL lists.
    connection.execute(f"COPY (FROM rows_of_the_query) TO '{file}' ({_COPIES[form]})")
    return None


def _print_file(file: Path, form: str) -> None:
    # Progress would be drawn between the bytes.
    with file.open("rb") as content, FOOTER.hidden():
        if form == JSON:
            sys.stdout.buffer.writelines(map(_valid_json, content))
        else:
            copyfileobj(content, sys.stdout.buffer)


def _valid_json(line: bytes) -> bytes:
    """Quote numbers that JSON lacks, as Protobuf's JSON and Spanner do; DuckDB writes them bare."""
    if b"NaN" not in line and b"Infinity" not in line:
        return line
    return _TEXT_OR_NOT_FINITE.sub(lambda part: part[0] if part[0][:1] == b'"' else b'"%b"' % part[0], line)
