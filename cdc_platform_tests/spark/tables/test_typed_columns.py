"""Values of every type, from Spanner's JSON to the columns of a table."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.sql import Row

from cdc_platform.errors import ChangeUnparsed, ValueUnfit
from cdc_platform.model.base.timestamps import to_nanosecond_text
from cdc_platform.model.schema.table_schema import Column, ColumnType, TableSchema
from cdc_platform.model.stream.records import ModType
from cdc_platform.spark.frames import casts
from cdc_platform.spark.log.order import order_records
from cdc_platform.spark.tables.typed_columns import flag_of, type_changes, unfit_values, with_row
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.spark.tables.value_texts import (
    UNFIT,
    VALUES,
    with_nanoseconds,
)
from cdc_platform_tests.support.pipelines import data_change, raw_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def change(new_values: str, *, is_whole: bool = True) -> dict[str, Any]:
    """Return the columns of a log row that typing looks at."""
    return {
        "change_kind": "update",
        "ordinal": 1,
        "keys": '{"id": "1"}',
        "new_values": new_values,
        "is_whole_row": is_whole,
    }


def typed(
    spark: "SparkSession",
    schema: TableSchema,
    rows: list[dict[str, Any]],
    *,
    has_partial_updates: bool = True,
) -> list[Row]:
    """Type log rows."""
    log = spark.createDataFrame(
        rows,
        "change_kind string, ordinal bigint, keys string, new_values string, is_whole_row boolean",
    )
    # Through Arrow, because `collect` has its own ideas of years before 1582.
    return [
        Row(**row)
        for row in type_changes(log, schema, has_partial_updates=has_partial_updates).toArrow().to_pylist()
    ]


def is_same(expected: object, actual: object) -> bool:
    """Return whether values are equal, NaN and its likes in arrays included."""
    return repr(expected) == repr(actual) or expected == actual


@pytest.mark.parametrize("threshold", [0, 10_000], ids=["by type", "by column"])
def test_every_type_is_cast(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, threshold: int) -> None:
    """One column per value, all in one row, so that one job suffices for any number of columns."""
    schema = table("t", {"id": "INT64"}, {f"c{n}": text for n, (text, _, _) in enumerate(VALUES)})
    fields = ", ".join(f'"c{n}": {value}' for n, (_, value, _) in enumerate(VALUES))
    monkeypatch.setattr(casts, "WIDE_COLUMNS", threshold)
    row = typed(spark, schema, [change("{" + fields + "}")])[0].asDict()
    for number, (text, value, expected) in enumerate(VALUES):
        cast_value = row[f"c{number}"]
        if isinstance(cast_value, datetime):
            cast_value = cast_value.astimezone(UTC)
        if isinstance(cast_value, list):
            cast_value = [part.astimezone(UTC) if isinstance(part, datetime) else part for part in cast_value]
        assert is_same(expected, cast_value), f"{text} {value}: {cast_value!r}"


def test_annotated_types_stay_text(spark: "SparkSession") -> None:
    """PostgreSQL's NUMERIC has a wider range than the type whose code it shares."""
    annotated = ColumnType.from_json({"code": "NUMERIC", "typeAnnotation": "PG_NUMERIC"})
    key = Column("id", ColumnType("INT64"), is_primary_key=True, ordinal=1)
    schema = TableSchema("t", (key, Column("n", annotated, is_primary_key=False, ordinal=2)))
    huge = "1" + "0" * 50
    assert typed(spark, schema, [change(json.dumps({"n": huge}))])[0]["n"] == huge


def test_nanoseconds_are_kept_as_text(spark: "SparkSession") -> None:
    """A timestamp whose nanoseconds count is in UTC with nine digits, for every spelling."""
    texts = {
        "2024-02-29T01:02:03.123456789Z": "2024-02-29T01:02:03.123456789Z",
        "2024-02-29T01:02:03.5+02:00": "2024-02-28T23:02:03.500000000Z",
        "0001-01-01T00:00:00.000000001Z": "0001-01-01T00:00:00.000000001Z",
        None: None,
    }
    schema = with_nanoseconds(table("t", {"id": "INT64"}, {"at": "TIMESTAMP"}))
    rows = typed(spark, schema, [change(json.dumps({"at": written})) for written in texts])
    assert [*texts.values()] == [row["at"] for row in rows]
    assert [*texts.values()] == [written and to_nanosecond_text(written) for written in texts]


@pytest.mark.parametrize(("text", "value"), UNFIT[::3])
def test_a_value_that_does_not_fit_fails_the_query(spark: "SparkSession", text: str, value: str) -> None:
    """It never becomes NULL; the error names table, key, column and value."""
    schema = table("t", {"id": "INT64"}, {"it's": text})
    with pytest.raises(ValueUnfit) as caught, unfit_values():
        typed(spark, schema, [change(json.dumps({"it's": json.loads(value)}))])
    unfit = caught.value
    assert (unfit.table, unfit.column, unfit.key) == ("t", "it's", '{"id": "1"}')
    assert ColumnType.from_spanner_type(text).text == unfit.type_name


@pytest.mark.parametrize(("text", "value"), UNFIT[::8])
def test_among_many_columns_a_value_that_does_not_fit_is_named(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, text: str, value: str
) -> None:
    """Where values are judged by type, not column by column, quarantine and queries name the column, too."""
    monkeypatch.setattr(casts, "WIDE_COLUMNS", 0)
    schema, values = table("t", {"id": "INT64"}, {"it's": text}), {"it's": json.loads(value)}
    with pytest.raises(ValueUnfit) as caught, unfit_values():
        typed(spark, schema, [change(json.dumps(values))])
    assert (caught.value.table, caught.value.column) == ("t", "it's")

    record = data_change(
        "t", ModType.INSERT, ({"id": "1"}, values), at_micros=1, transaction="x", schema=schema
    )
    records = spark.createDataFrame(raw_table([{**record, "cycle": 1}]))
    (row,) = order_records(records, 0, 1, [schema]).collect()
    kind = ColumnType.from_spanner_type(text).text
    assert row["fault"].startswith(f"`it's` of `t` is {kind}, which cannot hold: ")


UNPARSED: dict[str, str] = {
    "name": f'{{"{"n" * 50_001}": null, "a": "1"}}',
    "levels": f'{{"b": {"[" * 1_001}{"]" * 1_001}, "a": "1"}}',
    "number": f'{{"b": {"9" * 1_001}, "a": "1"}}',
    "text": f'{{"b": "{"b" * 20_000_001}", "a": "1"}}',
    "no JSON": "{",
}


@pytest.mark.parametrize("text", UNPARSED.values(), ids=UNPARSED)
def test_what_spark_does_not_parse_never_becomes_nulls(spark: "SparkSession", text: str) -> None:
    """The query fails; the error names table, part and key."""
    assert_unparsed(spark, [change(text)], "new_values")


@pytest.mark.parametrize("text", [UNPARSED["no JSON"], UNPARSED["number"]], ids=["no JSON", "number"])
def test_no_part_that_spark_does_not_parse_becomes_nulls(spark: "SparkSession", text: str) -> None:
    """Partial updates and keys fail the query as whole rows do, also where keys are read alone."""
    assert_unparsed(spark, [change(text, is_whole=False)], "new_values", has_partial_updates=True)
    of_keys = change("{}") | {"keys": text}
    assert_unparsed(spark, [of_keys], "keys")
    log = spark.createDataFrame([of_keys], "change_kind string, keys string")
    with pytest.raises(ChangeUnparsed), unfit_values():
        with_row(log, UNPARSED_TABLE).collect()


UNPARSED_TABLE: Final = table("t", {"id": "STRING(9)"}, {"a": "STRING(9)", "b": "STRING(9)"})


def assert_unparsed(
    spark: "SparkSession", rows: list[dict[str, Any]], part: str, *, has_partial_updates: bool = False
) -> None:
    """Assert that rows fail a query, and that the error names what is not parsed, in few words."""
    with pytest.raises(ChangeUnparsed) as caught, unfit_values():
        typed(spark, UNPARSED_TABLE, rows, has_partial_updates=has_partial_updates)
    assert (caught.value.table, caught.value.column) == ("t", part)
    assert len(str(caught.value)) < 1_500


def test_an_object_without_values_of_the_table_is_none(spark: "SparkSession") -> None:
    """A text that names nothing the table has, or NULLs, is read as such."""
    texts = ["{}", '{"other": "1"}', '{"a": null}', None]
    schema = table("t", {"id": "INT64"}, {"a": "STRING(9)"})
    changes = [change("{}") | {"new_values": text} for text in texts]
    rows = typed(spark, schema, changes, has_partial_updates=False)
    assert [(1, None)] * len(texts) == [(row["id"], row["a"]) for row in rows]


def test_faults_name_what_does_not_fit(spark: "SparkSession") -> None:
    """All values that cannot be cast are found while changes are ordered, and none that can."""
    every = [
        *((text, value, True) for text, value in UNFIT),
        *((text, value, False) for text, value, _ in VALUES),
    ]
    schemas = [table(f"t{n}", {"id": "INT64"}, {"it's": text}) for n, (text, _, _) in enumerate(every)]
    rows = [
        data_change(
            f"t{n}",
            ModType.INSERT,
            ({"id": "1"}, {"it's": json.loads(value)}),
            at_micros=n,
            transaction="t",
            schema=schemas[n],
        )
        for n, (_, value, _) in enumerate(every)
    ]
    frame = spark.createDataFrame(raw_table(rows))
    faults = {row["table_name"]: row["fault"] for row in order_records(frame, 0, 1, schemas).collect()}
    for number, (text, value, is_unfit) in enumerate(every):
        fault = faults[f"t{number}"]
        assert is_unfit == (fault is not None), (text, value, fault)
        if fault is not None:
            type_name = ColumnType.from_spanner_type(text).text
            assert fault.startswith(f"`it's` of `t{number}` is {type_name}, which cannot hold: ")


def test_faults_of_keys(spark: "SparkSession") -> None:
    """A key must name its columns, and hold no moment that another key could become one with."""
    schemas = [
        table("at", {"at": "TIMESTAMP"}, {}),
        with_nanoseconds(table("nanos", {"at": "TIMESTAMP"}, {})),
    ]
    cases: list[tuple[str, dict[str, Any], str | None]] = [
        ("at", {"at": "2024-02-29T01:02:03.123456Z"}, None),
        ("at", {"at": "2024-02-29T01:02:03.123456000Z"}, None),
        ("at", {"at": None}, None),
        ("at", {"at": "2024-02-29T01:02:03.1234567Z"}, "`at` of `at` is TIMESTAMP, which cannot hold: 2024"),
        ("nanos", {"at": "2024-02-29T01:02:03.1234567Z"}, None),
        ("nanos", {"at": "now"}, "`at` of `nanos` is TIMESTAMP"),
        ("at", {"AT": "2024-02-29T01:02:03Z"}, "the keys lack `at` of `at`"),
        ("unwatched", {"whatever": "x"}, None),
    ]
    rows = [
        data_change(name, ModType.DELETE, (keys, {}), at_micros=n, transaction=f"{n}")
        for n, (name, keys, _) in enumerate(cases)
    ]
    ordered = order_records(spark.createDataFrame(raw_table(rows)), 0, 1, schemas).collect()
    for row, (_, keys, expected) in zip(sorted(ordered, key=lambda row: row["ordinal"]), cases, strict=True):
        assert (expected is None) == (row["fault"] is None), keys
        assert str(row["fault"]).startswith(str(expected)), keys


def test_an_explicit_null_is_not_an_absent_column(spark: "SparkSession") -> None:
    """A partial update states for each column whether it names it."""
    cases: list[tuple[Mapping[str, Any], bool, Mapping[str, tuple[Any, bool]]]] = [
        ({"a": None}, False, {"a": (None, True), "b": (None, False)}),  # an explicit NULL, one absent
        ({"b": "x"}, False, {"a": (None, False), "b": ("x", True)}),
        ({}, False, {"a": (None, False), "b": (None, False)}),  # names nothing
        ({"a": "1"}, True, {"a": (1, True), "b": (None, True)}),  # a whole row names all: absent is NULL
    ]
    schema = table("t", {"id": "INT64"}, {"a": "INT64", "b": "STRING(9)"})
    rows = typed(spark, schema, [change(json.dumps(values), is_whole=whole) for values, whole, _ in cases])
    fields = [{name: (row[name], row[flag_of(name)]) for name in ("a", "b")} for row in rows]
    assert [expected for _, _, expected in cases] == fields


def test_names_that_differ_in_case_or_need_quotes_are_found(spark: "SparkSession") -> None:
    """Names are taken literally, and what JSON has besides the table's columns is ignored."""
    names = ["a b", "c`d", "e.f", "group", "ünï"]
    schema = table("t", {"id": "INT64"}, dict.fromkeys(names, "STRING(9)"))
    values = {**{name: name.upper() for name in names}, "other": "x", "GROUP": "no"}
    row = typed(spark, schema, [change(json.dumps(values))])[0]
    assert {name: name.upper() for name in names} == {name: row[name] for name in names}


def test_without_partial_updates_there_are_no_flags(spark: "SparkSession") -> None:
    """Whole rows need none, which makes their aggregation cheap."""
    schema = table("t", {"id": "INT64"}, {"a": "INT64"})
    row = typed(spark, schema, [change('{"a": "5"}')], has_partial_updates=False)[0]
    assert (row["id"], row["a"], flag_of("a") in row) == (1, 5, False)


def test_a_table_of_keys_only_has_no_values(spark: "SparkSession") -> None:
    """Keys are all that is typed."""
    schema = table("t", {"id": "INT64", "name": "STRING(9)"}, {})
    keys = {**change("{}"), "keys": '{"id": "1", "name": null}'}
    row = typed(spark, schema, [keys])[0]
    assert (row["id"], row["name"]) == (1, None)
