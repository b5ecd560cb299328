"""A table of PostgreSQL whose columns change their types without an event for the rows that are there."""

import datetime as dt
import itertools
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import IS_CURRENT, TableOptions
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.value_check import check_values
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.versions.branch import load_table
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER, NullPolicy
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform_tests.sources.debezium.cycles import append
from cdc_platform_tests.sources.debezium.written_events import TABLE, envelope, line, settings_with
from cdc_platform_tests.support.cycles import failed_checks, sync
from cdc_platform_tests.support.debezium.connector import Connector
from cdc_platform_tests.support.pipelines import merging_by_spark, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_serial: Final = itertools.count(1)
DAY: Final = dt.date(2024, 2, 29)
# column: type, new type, the event's value, the lake's, and what the lake has of it under the new type
WIDENED: Final[Mapping[str, tuple[str, str, Any, Any, Any]]] = {
    "digits": ("integer", "text", 7, 7, "7"),
    "scaled": ("numeric(10,2)", "numeric(14,4)", "fQ==", Decimal("1.25"), Decimal("1.2500")),
    "unbound": ("numeric(10,2)", "numeric", "fQ==", Decimal("1.25"), "1.25"),
    "exact": ("integer", "numeric", 7, 7, "7"),
    "double": ("real", "double precision", 1.5, 1.5, 1.5),
    "moment": ("date", "timestamp", 19782, DAY, dt.datetime.combine(DAY, dt.time())),
    "shown": ("jsonb", "text", "{}", "{}", "{}"),
}
# column: type, new type, the event's value, the lake's, and the name under which it is set aside
SET_ASIDE: Final[Mapping[str, tuple[str, str, Any, Any, str]]] = {
    "hex": ("bytea", "text", "AP8=", b"\x00\xff", "hex__bytes"),
    "binary": ("text", "bytea", "a", "a", "binary__string"),
    "parsed": ("text", "jsonb", "{}", "{}", "parsed__string"),
    "listed": ("integer[]", "text[]", [1], [1], "listed__array_int64"),
    "rounded": ("real", "text", 1.5, 1.5, "rounded__float32"),
    "narrow": ("numeric(14,4)", "numeric(10,2)", "MDk=", Decimal("1.2345"), "narrow__decimal"),
}
CASES: Final = {**WIDENED, **SET_ASIDE}
BEFORE: Final = {"id": "bigint", "n": "integer", **{name: case[0] for name, case in CASES.items()}}
AFTER: Final = {"id": "bigint", "n": "integer", **{name: case[1] for name, case in CASES.items()}}


def make_pipeline(
    lake: LakeSettings,
    folder: Path,
    columns: Mapping[str, str],
    options: TableOptions | None = None,
    **rest: Any,
) -> Pipeline:
    """Return a pipeline over the files of a folder, whose table has these columns."""
    settings = settings_with(
        input=FilesInput(str(folder)), has_transaction_topic=True, columns={TABLE: columns}, **rest
    )
    table_options = {TABLE: options} if options is not None else {}
    name = f"retyped_{next(_serial)}"
    return open_pipeline(PipelineSettings(name, settings, lake, table_options=table_options))


def with_columns(pipeline: Pipeline, columns: Mapping[str, str]) -> Pipeline:
    """Return the pipeline with other types of the table's columns."""
    source = pipeline.settings.source
    assert isinstance(source, DebeziumSettings)
    return open_pipeline(replace(pipeline.settings, source=replace(source, columns={TABLE: columns})))


def write(folder: Path, connector: Connector, key: int, **row: Any) -> None:
    """Write a transaction that updates a row."""
    begun = len(connector.lines)
    connector.begin()
    connector.update(key, **row)
    connector.end()
    append(folder / "events.jsonl", connector.lines[begun:])


UNSENT: Final = dict.fromkeys(("digits", "shown", "hex", "parsed"), DEFAULT_PLACEHOLDER)
FOUND: Final = {"n": 1, "digits": "7", "shown": "{}", "hex": None, "parsed": None}
"""What is stored of values that were not sent: nothing, of those that were set aside."""


def assert_unresolved(pipeline: Pipeline, spark: "SparkSession") -> None:
    """Assert that the values that were set aside are reported, and no other ones."""
    result = check_values(pipeline, spark, EVERYTHING)
    assert result.facts["unresolved"] == 2
    assert f'`{TABLE}` {{"id":1}}: hex; `{TABLE}` {{"id":1}}: parsed' in result.summary


def test_what_is_stored_when_columns_change_their_types(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """A wider type takes stored values over, in table, history and rebuild; other types do not."""
    pipeline = make_pipeline(
        session_lake, tmp_path, BEFORE, TableOptions(history=True), null_policies={"*": NullPolicy.NULL}
    )
    connector, values = Connector(), {name: case[2] for name, case in CASES.items()}
    for key in (1, 2):
        write(tmp_path, connector, key, n=0, **values)
    pipeline = with_columns(sync(pipeline, spark), AFTER)
    write(tmp_path, connector, 1, n=1, **{**dict.fromkeys(CASES), **UNSENT})
    before = len(load_table(pipeline, TABLE).snapshots())
    pipeline = sync(pipeline, spark)
    # All columns are converted at once, and the change is merged.
    assert len(load_table(pipeline, TABLE).snapshots()) == before + 2
    widened = {name: case[4] for name, case in WIDENED.items()}
    aside = {case[4]: case[3] for case in SET_ASIDE.values()} | dict.fromkeys(SET_ASIDE)
    for is_rebuilt in (False, True):
        if is_rebuilt:
            rebuild_table(pipeline, spark, TABLE)
        first, second = sorted(rows_of(pipeline, TABLE), key=lambda row: int(row["id"]))
        assert widened == {name: second[name] for name in WIDENED}
        assert aside == {name: second[name] for name in aside}
        assert {name: first[name] for name in FOUND} == FOUND
        versions = rows_of(pipeline, f"{TABLE}__history")
        former = next(row for row in versions if row["id"] == 1 and not row[IS_CURRENT])
        assert widened | aside == {name: former[name] for name in (widened | aside)}
    checks = ("tables_equal_log", "histories_sound", "values_resolved")
    assert failed_checks(pipeline, spark, *checks).keys() == {"values_resolved"}
    write(tmp_path, connector, 1, n=2, **{**dict.fromkeys(CASES), **UNSENT})
    pipeline = sync(pipeline, spark)
    assert_unresolved(pipeline, spark)


def test_a_completed_log_has_values_of_a_wider_type_only(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """With `enrich` the log, too, takes stored values over from a narrower type, and from no other one."""
    before, after = ({name: types[name] for name in ("id", "n", *UNSENT)} for types in (BEFORE, AFTER))
    pipeline = make_pipeline(session_lake, tmp_path, before, strategy="enrich")
    connector = Connector()
    write(tmp_path, connector, 1, n=0, **{name: CASES[name][2] for name in UNSENT})
    pipeline = with_columns(sync(pipeline, spark), after)
    for n in (1, 2):
        write(tmp_path, connector, 1, n=n, **UNSENT)
        pipeline = sync(pipeline, spark)
        (row,) = rows_of(pipeline, TABLE)
        assert {name: row[name] for name in FOUND} == {**FOUND, "n": n}
        assert (row["hex__bytes"], row["parsed__string"]) == (b"\x00\xff", "{}")
        assert_unresolved(pipeline, spark)


@pytest.mark.parametrize(("strategy", "is_one_cycle"), [("omit", True), ("enrich", False)])
def test_a_value_under_another_name_is_unresolved(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, strategy: str, *, is_one_cycle: bool
) -> None:
    """A row that was written before its column was renamed says nothing about the column of that name."""
    columns = {"id": "bigint", "n": "integer", "big": "text", "renamed": "text"}
    pipeline, connector = make_pipeline(session_lake, tmp_path, columns, strategy=strategy), Connector()
    for key in (1, 2):
        write(tmp_path, connector, key, n=0, big="large")
    if not is_one_cycle:
        pipeline = sync(pipeline, spark)
    write(tmp_path, connector, 1, n=1, renamed=DEFAULT_PLACEHOLDER)
    for n in (2, 3):
        pipeline = sync(pipeline, spark)
        result = check_values(pipeline, spark, EVERYTHING)
        assert result.facts["unresolved"] == 1
        assert f'`{TABLE}` {{"id":1}}: renamed' in result.summary
        write(tmp_path, connector, 1, n=n, renamed=DEFAULT_PLACEHOLDER)
    write(tmp_path, connector, 1, n=4, renamed="large")
    pipeline = sync(pipeline, spark)
    assert check_values(pipeline, spark, EVERYTHING).facts["unresolved"] == 0


def test_a_row_of_a_snapshot_moves_no_version_of_a_change(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """A snapshot reads for hours what the changes behind it have changed long ago, in its cycle or later."""
    begun_s = 1_700_000_000

    def event(op: str, key: int, n: int, at_s: int, lsn: int, snapshot: str = "false") -> str:
        block = {"lsn": lsn, "txId": lsn, "sequence": f'["{lsn}","{lsn}"]', "snapshot": snapshot}
        source = {**block, "ts_ms": (begun_s + at_s) * 1000}
        return line(envelope(op, after={"id": key, "n": n}, source=source), {"id": key})

    settings = settings_with(
        input=FilesInput(str(tmp_path)), columns={TABLE: {"id": "bigint", "n": "integer"}}
    )
    options = {TABLE: TableOptions(history=True)}
    name = f"snapshot_{next(_serial)}"
    pipeline = open_pipeline(PipelineSettings(name, settings, session_lake, table_options=options))
    for lines in (
        [event("r", 1, 0, 100, 500, "first"), event("r", 2, 0, 100, 500, "last"), event("u", 1, 1, 10, 600)],
        [event("u", 2, 2, 20, 700), event("u", 1, 3, 110, 800), event("r", 2, 2, 200, 800, "incremental")],
        [event("u", 2, 4, 120, 900)],
    ):
        append(tmp_path / "events.jsonl", lines)
        pipeline = sync(pipeline, spark)
    assert failed_checks(pipeline, spark, "tables_equal_log", "histories_sound", "nothing_lost") == {}
    versions = [
        (row["id"], row["n"], *(moment and int(moment.timestamp()) - begun_s for moment in bounds))
        for row in rows_of(pipeline, f"{TABLE}__history")
        if (bounds := (row["valid_from"], row["valid_to"]))
    ]
    assert sorted(versions, key=repr) == [
        (1, 0, 10, 10),
        (1, 1, 10, 110),
        (1, 3, 110, None),
        (2, 0, 20, 20),
        (2, 2, 120, 120),
        (2, 2, 20, 120),
        (2, 4, 120, None),
    ]


@pytest.mark.parametrize("by_spark", [False, True])
def test_an_array_may_be_a_key(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, *, by_spark: bool
) -> None:
    """PostgreSQL allows it: rows and versions are found by it, wherever they are merged."""

    def event(op: str, key: list[int | None], n: int) -> str:
        source = {"lsn": n, "txId": n, "sequence": f'["{n - 1}","{n}"]'}
        return line(
            envelope(op, after={"id": key, "n": n} if op != "d" else None, source=source), {"id": key}
        )

    columns = {TABLE: {"id": "integer[]", "n": "integer"}}
    settings = settings_with(input=FilesInput(str(tmp_path)), columns=columns)
    options = {TABLE: TableOptions(history=True)}
    name = f"array_key_{next(_serial)}"
    pipeline = open_pipeline(PipelineSettings(name, settings, session_lake, table_options=options))
    pipeline = merging_by_spark(pipeline) if by_spark else pipeline
    for lines in (
        [event("c", [1], 10), event("c", [1, 2], 20), event("c", [], 30), event("c", [12], 40)],
        [event("u", [1, 2], 50), event("d", [12], 60), event("c", [2], 70)],
    ):
        append(tmp_path / "events.jsonl", lines)
        pipeline = sync(pipeline, spark)
    assert sorted((row["n"], row["id"]) for row in rows_of(pipeline, TABLE)) == [
        (10, [1]),
        (30, []),
        (50, [1, 2]),
        (70, [2]),
    ]
    assert failed_checks(pipeline, spark, "tables_equal_log", "histories_sound", "keys_unique") == {}


def typed_line(place: int, kind: str, **row: Any) -> str:
    """Return the insert of a row at a place of the log, with a schema block: `v` has the given type."""
    fields = [
        {"type": "int64", "optional": False, "field": "id"},
        {"type": kind, "optional": True, "field": "v"},
    ]
    image = {"type": "struct", "optional": True, "fields": fields}
    block = {
        "type": "struct",
        "fields": [image | {"field": "before"}, image | {"field": "after"}],
        "name": "s.public.orders.Envelope",
    }
    source = {"lsn": place, "sequence": f'["{place - 1}","{place}"]', "txId": place}
    return line({"schema": block, "payload": envelope("c", after=row, source=source)}, {"id": row["id"]})


TYPED_VALUES: Final = {"int64": 7, "string": "abc", "double": 1.5}


SEQUENCES: Final = {
    "_".join(kinds): kinds
    for kinds in (
        ("int64", "string", "int64", "double"),
        ("string", "double", "string", "double"),
        ("double", "string", "string"),
    )
}
"""Types of the column `v` in the events of each table, in the order of the log."""


def test_a_cycle_may_read_several_types_of_a_column(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """Each event has the types of its place in the log, whether one cycle reads all of them or one each."""
    tables = [f"public.{name}" for name in SEQUENCES]
    histories = tables[:2]
    options = dict.fromkeys(histories, TableOptions(history=True))
    pipelines = {
        name: open_pipeline(
            PipelineSettings(
                f"retyped_{next(_serial)}",
                settings_with(
                    input=FilesInput(str(tmp_path / name)), columns={table: {} for table in tables}
                ),
                session_lake,
                table_options=options,
            )
        )
        for name in ("together", "apart")
    }
    for key, kinds in enumerate(itertools.zip_longest(*SEQUENCES.values())):
        lines = [
            typed_line(100 + 10 * key + number, kind, id=key, v=TYPED_VALUES[kind]).replace("orders", name)
            for number, (name, kind) in enumerate(zip(SEQUENCES, kinds, strict=True))
            if kind is not None
        ]
        for name, pipeline in pipelines.items():
            append(tmp_path / name / "events.jsonl", lines)
            if name == "apart":
                pipelines[name] = sync(pipeline, spark)
    together, apart = sync(pipelines["together"], spark), pipelines["apart"]
    for name in (*tables, *(f"{table}__history" for table in histories)):
        assert rows_of(apart, name) == rows_of(together, name)
    assert not failed_checks(together, spark, "tables_equal_log", "histories_sound")
    for table in tables:
        rows = rows_of(together, table)
        rebuild_table(together, spark, table)
        assert rows == rows_of(together, table)


def test_a_repeated_event_brings_no_former_type_back(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """A connector that restarts sends events from before a change of type again, with their former type."""
    pipeline, file = make_pipeline(session_lake, tmp_path, {}), tmp_path / "events.jsonl"
    before = [typed_line(100, "string", id=0, v="abc"), typed_line(101, "double", id=1, v=1.5)]
    append(file, before)
    pipeline = sync(pipeline, spark)
    append(file, [*before, typed_line(102, "double", id=2, v=2.5)])
    pipeline = sync(pipeline, spark)
    rows = {row["id"]: (row["v"], row["v__string"]) for row in rows_of(pipeline, TABLE)}
    assert rows == {0: (None, "abc"), 1: (1.5, None), 2: (2.5, None)}


def test_a_new_event_with_a_lower_position_shows_a_type(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """Positions of a restored server begin again: its events are new, and bring their types."""
    pipeline, file = make_pipeline(session_lake, tmp_path, {}), tmp_path / "events.jsonl"
    for lines in (
        [typed_line(2000, "string", id=0, v="abc"), typed_line(2001, "double", id=1, v=1.5)],
        [typed_line(100, "double", id=2, v=2.5)],
        [typed_line(101, "string", id=3, v="def"), typed_line(102, "string", id=4, v="ghi")],
    ):
        append(file, lines)
        pipeline = sync(pipeline, spark)
    assert failed_checks(pipeline, spark, "tables_equal_log") == {}
    values = {row["id"]: {*row.values()} for row in rows_of(pipeline, TABLE)}
    assert "def" in values[3]
    assert "ghi" in values[4]
