"""Schema changes of a database on the emulator, followed without a restart to tables that equal it."""

from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.commands.operating.sync import print_notes
from cdc_platform.commands.reading.status import describe_status
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.lake.state.schema_history import list_schema_events
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.log_checks import check_nothing_lost
from cdc_platform.pipeline.checks.source_checks import check_schema, check_source
from cdc_platform.pipeline.checks.table_checks import check_tables_equal_log
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.on_demand.status import read_status
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.schema.schema_evolution import find_exclusions
from cdc_platform.printing.tables import as_text
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform_tests.servers.bank import BankSettings, create_instance, open_client, open_database
from cdc_platform_tests.support.pipelines import quarantined_rows, rows_of
from cdc_platform_tests.support.workloads.bank_databases import catch_up, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

BEGINNING: Final = (
    "CREATE TABLE notes (id INT64, text STRING(MAX), rank INT64, old STRING(9)) PRIMARY KEY (id)",
    """CREATE TABLE partly (id INT64, a STRING(9), b STRING(9), doubled INT64 AS (id * 2) STORED)
  PRIMARY KEY (id)""",
    "CREATE CHANGE STREAM everything FOR ALL OPTIONS (value_capture_type = 'NEW_ROW')",
    # Altered, a stream ends the emulator where it watches a table of which a column was dropped, and of
    # several tables the last one alone is in the information schema.
    "CREATE CHANGE STREAM named FOR partly(a) OPTIONS (value_capture_type = 'NEW_ROW')",
)

ROUNDS: Final[tuple[tuple[str | tuple[str, ...], ...], ...]] = (
    # Texts are definitions, tuples are transactions; each round is read at once.
    (
        (
            "INSERT INTO notes (id, text, rank, old) VALUES (1, 'a', 1, 'x'), (2, 'b', 2, 'y')",
            "INSERT INTO notes (id, text, rank, old) VALUES (3, 'c', 3, 'z')",
            "INSERT INTO partly (id, a, b) VALUES (1, 'a', 'b')",
        ),
    ),
    (
        "ALTER TABLE notes ADD COLUMN tags ARRAY<STRING(9)>",
        ("UPDATE notes SET tags = ['new'], rank = 20 WHERE id = 2",),
        "ALTER TABLE notes ALTER COLUMN text BYTES(MAX)",
        "ALTER TABLE notes DROP COLUMN old",
        "ALTER CHANGE STREAM everything SET OPTIONS (value_capture_type = 'OLD_AND_NEW_VALUES')",
        ("UPDATE notes SET rank = 30 WHERE id = 3", "INSERT INTO notes (id, text) VALUES (4, b'd')"),
        "CREATE TABLE late (k STRING(9), v INT64) PRIMARY KEY (k)",
        ("INSERT INTO late (k, v) VALUES ('a', 1), ('b', 2)",),
        "ALTER TABLE notes ADD COLUMN old INT64",
        ("UPDATE notes SET old = 7 WHERE id = 1",),
    ),
    (
        ("UPDATE notes SET rank = NULL WHERE true",),
        "DROP TABLE late",
        ("DELETE FROM notes WHERE id = 2",),
    ),
)


WATCHES: Final[tuple[tuple[str | tuple[str, ...], ...], ...]] = (
    (
        # Within one cycle the last column of a table comes to the stream, leaves it, and comes back.
        "ALTER CHANGE STREAM named SET FOR partly(a, b)",
        ("INSERT INTO partly (id, a, b) VALUES (2, 'c', 'd')",),
        "ALTER CHANGE STREAM named SET FOR partly(a)",
        ("UPDATE partly SET a = 'e', b = 'unseen' WHERE id = 2", "UPDATE partly SET b = 'too' WHERE id = 1"),
        "ALTER CHANGE STREAM named SET FOR partly(a, b)",
        ("INSERT INTO partly (id, a, b) VALUES (3, 'f', 'g')",),
    ),
    (
        # The table leaves, and one with a row is watched from now on.
        "CREATE TABLE joined (id INT64, v INT64) PRIMARY KEY (id)",
        ("INSERT INTO joined (id, v) VALUES (1, 1)",),
        "ALTER CHANGE STREAM named SET FOR joined",
        (
            "INSERT INTO partly (id, a, b) VALUES (4, 'unseen', 'h')",
            "INSERT INTO joined (id, v) VALUES (2, 2)",
        ),
    ),
    (
        "ALTER CHANGE STREAM named SET FOR partly(a, b)",
        ("UPDATE joined SET v = 3 WHERE id = 1", "INSERT INTO partly (id, a, b) VALUES (5, 'i', 'j')"),
    ),
)
"""Tables and columns that the change stream `named` watches, round by round."""


KEYLESS: Final = (
    "CREATE TABLE one (v INT64) PRIMARY KEY ()",
    "CREATE TABLE other (id INT64, v INT64) PRIMARY KEY (id)",
    "CREATE CHANGE STREAM s FOR ALL OPTIONS (value_capture_type = 'NEW_ROW')",
)


def follow(host: str, lake: LakeSettings, database: str, stream: str) -> Pipeline:
    """Return a pipeline of a stream of a database."""
    bank = BankSettings(host, database=database)
    source = SpannerSettings(bank.project, bank.instance, bank.database, stream, emulator_host=host)
    return open_pipeline(PipelineSettings(f"{database}_{stream}", source, lake))


def play(bank: BankSettings, steps: tuple[str | tuple[str, ...], ...]) -> None:
    """Run definitions and transactions, one after the other; the definitions of a text are one change."""
    for step in steps:
        if isinstance(step, tuple):
            write(bank, step)
        else:
            with open_database(bank) as database:
                database.update_ddl(step.split("; ")).result(300)


def test_tables_follow_the_schema_and_equal_the_source(
    spark: "SparkSession",
    session_lake: LakeSettings,
    still_emulator: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Columns and tables come and go, types and the capture type change between two cycles of a pipeline."""
    bank = BankSettings(still_emulator, database="evolving")
    make_database(bank, BEGINNING)
    whole, partial = (
        follow(still_emulator, session_lake, bank.database, stream) for stream in ("everything", "named")
    )
    for pipeline in (whole, partial):
        catch_up(pipeline, spark)
    for steps in ROUNDS:
        play(bank, steps)
        catch_up(whole, spark)
        result = check_source(whole, spark, EVERYTHING)
        assert result.passed, result.summary
    for check in (check_nothing_lost, check_tables_equal_log):
        result = check(whole, spark, EVERYTHING)
        assert result.passed, result.summary
    cut = newest_cut(whole.lake)
    assert cut is not None
    assert {"notes", "partly", "late"} == set(cut.tables)
    assert [(row["k"], row["v"]) for row in rows_of(whole, "late")] == [("a", 1), ("b", 2)]
    notes = {row["id"]: row for row in rows_of(whole, "notes")}
    assert tuple(notes[key]["text"] for key in (1, 3, 4)) == (b"a", b"c", b"d")
    assert (notes[1]["old__string"], notes[1]["old"], notes[3]["old__string"]) == ("x", 7, "z")
    changed = [
        (event.change.value, event.table, event.name)
        for event in list_schema_events(whole.lake)
        if event.since_micros
    ]
    assert [event for event in changed if event[2] in {"tags", "text"}] == [
        ("column_added", "notes", "tags"),
        ("column_retyped", "notes", "text"),
    ]
    assert {("table_added", "late", None), ("table_dropped", "late", None)} <= set(changed)
    assert ("option_set", None, "value_capture_type") in changed
    check_partial(partial, spark)
    print_notes(partial)
    assert "Note: `partly`: " in capsys.readouterr().err
    # The emulator counts streams that were altered as several, and allows three for a column.
    play(bank, ("DROP CHANGE STREAM everything",))
    check_watches(bank, partial, spark)
    for pipeline in (whole, partial):
        pipeline.source.close()


def check_partial(pipeline: Pipeline, spark: "SparkSession") -> None:
    """A column that is not watched, or generated, is reported as missing; the others equal the source."""
    summary = " ".join(find_exclusions(pipeline))
    assert "`partly`: columns that the change stream does not watch are not in the lake: b" in summary
    assert "no change stream sends them: doubled." in summary
    catch_up(pipeline, spark)
    assert [tuple(row.values()) for row in rows_of(pipeline, "partly")] == [(1, "a")]
    result = check_source(pipeline, spark, EVERYTHING)
    assert result.passed, result.summary
    assert "not compared: b, doubled of `partly`" in result.summary
    assert "no change stream sends them: doubled." in as_text(describe_status(read_status(pipeline)))


def check_watches(bank: BankSettings, pipeline: Pipeline, spark: "SparkSession") -> None:
    """Columns and tables leave the stream and come back; what the tables lack for it is reported."""
    summary: list[str] = []
    for steps in WATCHES:
        play(bank, steps)
        catch_up(pipeline, spark)
        if len(summary) == 1:
            catch_up(pipeline, spark)  # which copies the table with a row
        result = check_source(pipeline, spark, EVERYTHING)
        assert result.passed, result.summary
        summary.append(result.summary)
    assert "not compared: b, doubled of `partly`" in summary[0]
    assert "`partly` is not watched there" in summary[1]
    assert (
        "`partly` differs as expected, since `partly` was not watched for a while: 1 rows missing"
        in summary[2]
    )
    result = check_tables_equal_log(pipeline, spark, EVERYTHING)
    assert result.passed, result.summary
    partly = {row["id"]: (row["a"], row["b"], row["b__string"]) for row in rows_of(pipeline, "partly")}
    assert partly == {
        1: ("a", None, None),
        2: ("e", None, "d"),
        3: ("f", "g", None),
        5: ("i", "j", None),
    }
    # Its last state: what it has got since it left is not known.
    assert [(row["id"], row["v"]) for row in rows_of(pipeline, "joined")] == [(1, 1), (2, 2)]
    check_suspension(bank, pipeline, spark)


def check_suspension(bank: BankSettings, pipeline: Pipeline, spark: "SparkSession") -> None:
    """A process that starts while the stream watches nothing reads what was written before."""
    play(bank, (("DELETE FROM partly WHERE id < 5",), "ALTER CHANGE STREAM named DROP FOR ALL"))
    restarted = open_pipeline(pipeline.settings)
    catch_up(restarted, spark)
    assert [row["id"] for row in rows_of(restarted, "partly")] == [5]
    assert "`partly` is no longer watched; the lake keeps its last state." in find_exclusions(restarted)
    restarted.source.close()


def make_database(bank: BankSettings, definitions: tuple[str, ...]) -> None:
    """Make the database with its tables and streams."""
    with open_client(bank) as client:
        create_instance(bank, client)
        instance = client.instance(bank.instance)
        instance.database(bank.database, ddl_statements=definitions).create().result(300)


def test_a_made_table_is_in_the_cut_of_its_first_transaction(
    spark: "SparkSession", session_lake: LakeSettings, still_emulator: str
) -> None:
    """So it is where another table goes in the same cycle, too: no reader sees a half of the transaction."""
    bank = BankSettings(still_emulator, database="creations")
    make_database(bank, ("CREATE TABLE gone (id INT64, v INT64) PRIMARY KEY (id)", *KEYLESS[1:]))
    play(bank, (("INSERT INTO other (id, v) VALUES (1, 1)",),))
    pipeline = follow(still_emulator, session_lake, "creations", "s")
    catch_up(pipeline, spark)
    made = "CREATE TABLE made (id INT64, v INT64) PRIMARY KEY (id)"
    both = ("INSERT INTO made (id, v) VALUES (3, 3)", "UPDATE other SET v = -2 WHERE true")
    play(bank, ("DROP TABLE gone", made, both))
    cut = run_cycle(pipeline, spark).cut
    assert cut is not None
    assert {"gone", "made", "other"} == set(cut.tables)
    assert [(row["id"], row["v"]) for row in rows_of(pipeline, "made")] == [(3, 3)]
    result = check_source(pipeline, spark, EVERYTHING)
    assert result.passed, result.summary
    pipeline.source.close()


def test_a_table_without_a_key_column_is_left_out_by_itself(
    spark: "SparkSession", session_lake: LakeSettings, still_emulator: str
) -> None:
    """It is named, all others continue, and a table of its name that has a key is read."""
    bank = BankSettings(still_emulator, database="keyless")
    make_database(bank, KEYLESS)
    play(bank, (("INSERT INTO one (v) VALUES (1)", "INSERT INTO other (id, v) VALUES (1, 1)"),))
    pipeline = follow(still_emulator, session_lake, "keyless", "s")
    catch_up(pipeline, spark)
    late = "CREATE TABLE late (v INT64) PRIMARY KEY ()"
    play(bank, (late, ("INSERT INTO late (v) VALUES (1)", "UPDATE other SET v = 2 WHERE true")))
    catch_up(pipeline, spark)
    assert [(row["id"], row["v"]) for row in rows_of(pipeline, "other")] == [(1, 2)]
    assert [table.name for table in pipeline.tables] == ["other"]
    assert quarantined_rows(pipeline) == []
    summary = check_schema(pipeline, spark, EVERYTHING).summary
    assert all(f"`{name}` has a primary key without columns" in summary for name in ("one", "late"))
    keyed = ("DROP TABLE one", "CREATE TABLE one (id INT64, v INT64) PRIMARY KEY (id)")
    play(bank, (("UPDATE one SET v = 3 WHERE true",), *keyed, ("INSERT INTO one (id, v) VALUES (7, 7)",)))
    catch_up(pipeline, spark)
    catch_up(pipeline, spark)
    assert [(row["id"], row["v"]) for row in rows_of(pipeline, "one")] == [(7, 7)]
    for check in (check_nothing_lost, check_tables_equal_log, check_source):
        result = check(pipeline, spark, EVERYTHING)
        assert result.passed, result.summary
    pipeline.source.close()


RENAMES: Final[tuple[tuple[str | tuple[str, ...], ...], ...]] = (
    (
        "ALTER TABLE former RENAME TO renamed",
        "CREATE VIEW former SQL SECURITY INVOKER AS SELECT renamed.id, renamed.v FROM renamed",
        "ALTER TABLE replaced RENAME TO kept; CREATE TABLE replaced (k STRING(9), v INT64) PRIMARY KEY (k)",
        "DROP TABLE gone",
        "CREATE VIEW gone SQL SECURITY INVOKER AS SELECT other.id, other.v FROM other",
        ("UPDATE other SET v = 2 WHERE true", "INSERT INTO replaced (k, v) VALUES ('a', 5)"),
    ),
    ("DROP VIEW gone", "CREATE TABLE gone (id INT64, v INT64) PRIMARY KEY (id)", "DROP VIEW former"),
    (("INSERT INTO gone (id, v) VALUES (7, 7)",), "ALTER TABLE renamed RENAME TO former"),
)
"""Tables that get other names, and tables and views that get their names, round by round."""


def test_names_of_tables_go_to_other_tables_and_to_views(
    spark: "SparkSession", session_lake: LakeSettings, still_emulator: str
) -> None:
    """A renamed table is copied though its name is not free, and one whose name a view took was dropped."""
    bank = BankSettings(still_emulator, database="names")
    names = ("former", "replaced", "gone")
    tables = [f"CREATE TABLE {name} (id INT64, v INT64) PRIMARY KEY (id)" for name in names]
    make_database(bank, (*tables, *KEYLESS[1:]))
    play(bank, (tuple(f"INSERT INTO {name} (id, v) VALUES (1, 1)" for name in (*names, "other")),))
    pipeline = follow(still_emulator, session_lake, "names", "s")
    catch_up(pipeline, spark)
    for steps in RENAMES:
        play(bank, steps)
        catch_up(pipeline, spark)
        catch_up(pipeline, spark)  # which copies tables that were renamed
        for check in (check_tables_equal_log, check_source):
            result = check(pipeline, spark, EVERYTHING)
            assert result.passed, result.summary
    assert "differs as expected, since `former` was not copied: 1 rows missing" in result.summary
    values = {name: [row["v"] for row in rows_of(pipeline, name)] for name in newest_tables(pipeline)}
    assert values == {"former": [], "gone": [7], "kept": [1], "other": [2], "renamed": [1], "replaced": [5]}
    pipeline.source.close()


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ("ALTER TABLE keyed RENAME TO away; ALTER TABLE coded RENAME TO keyed", 1),
        ("DROP TABLE keyed; CREATE TABLE keyed (k STRING(9), v INT64) PRIMARY KEY (k)", 0),
    ],
)
def test_the_rows_of_a_table_with_another_key_are_reported_as_missing(
    spark: "SparkSession", session_lake: LakeSettings, still_emulator: str, change: str, missing: int
) -> None:
    """It got the name of another table between two reads; a new table has no rows before its own."""
    bank = BankSettings(still_emulator, database=f"swapped_{missing}")
    coded = "CREATE TABLE coded (k STRING(9), v INT64) PRIMARY KEY (k)"
    make_database(bank, ("CREATE TABLE keyed (id INT64, v INT64) PRIMARY KEY (id)", coded, *KEYLESS[1:]))
    play(bank, (("INSERT INTO keyed (id, v) VALUES (1, 1)", "INSERT INTO coded (k, v) VALUES ('a', 2)"),))
    pipeline = follow(still_emulator, session_lake, bank.database, "s")
    catch_up(pipeline, spark)
    play(bank, (*change.split("; "), ("INSERT INTO keyed (k, v) VALUES ('b', 3)",)))
    catch_up(pipeline, spark)
    catch_up(pipeline, spark)
    result = check_source(pipeline, spark, EVERYTHING)
    assert result.passed, result.summary
    finding = "differs as expected, since `keyed` was not copied: 1 rows missing"
    assert (missing == 1) is (finding in result.summary)
    pipeline.source.close()


def newest_tables(pipeline: Pipeline) -> set[str]:
    """Return the tables of the newest cut."""
    cut = newest_cut(pipeline.lake)
    assert cut is not None
    return {*cut.tables}
