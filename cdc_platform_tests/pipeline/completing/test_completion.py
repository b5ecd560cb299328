"""Batches come out as the model says, be they few changes in this process or many in Spark."""

import json
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.progress import Progress, Step
from cdc_platform.model.rows.resolution import RowChange, RowId, key_chains_of
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.stream.records import ModType
from cdc_platform.pipeline.completing.completion import MAX_ROWS, complete_changes, complete_few
from cdc_platform.pipeline.completing.key_chains import ChainChange
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.reading.read import read_generations
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER, Strategy
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform.sources.json_codec import read_members
from cdc_platform.spark.session.session_settings import interpreting
from cdc_platform_tests.sources.debezium.written_events import envelope, line, settings_with
from cdc_platform_tests.support.cycles import sync
from cdc_platform_tests.support.reference.played_rows import LARGE, Database
from cdc_platform_tests.support.reference.resolved_rows import resolve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

STILL: Final = "public.still"
MOVING: Final = "public.moving"
COLUMNS: Final = {"id": "bigint", "a": "integer", "big": "text"}
KEYS: Final = 30
UNSEEN: Final = 20
"""From this key on, the large value was never sent."""
DELETED: Final = 99
"""The key of a row that was deleted, and that a table may keep."""
MOVED: Final = 98
"""The key that it has got, in the table whose rows move."""
ORDERED: Final = pa.schema(
    [
        ("table_name", pa.string()),
        ("change_kind", pa.string()),
        ("transaction_id", pa.string()),
        ("keys", pa.string()),
        ("previous_keys", pa.string()),
        ("new_values", pa.string()),
        ("unavailable_columns", pa.list_(pa.string())),
        ("is_whole_row", pa.bool_()),
        ("ordinal", pa.int64()),
        ("ordering_key", pa.string()),
        ("unsound", pa.bool_()),
    ]
)


def rows_before(table: str) -> Iterator[str]:
    """Yield events of the rows that the tables have, of some without their large values, and of one more."""
    for number in (*range(KEYS), DELETED):
        op, big = ("u", DEFAULT_PLACEHOLDER) if UNSEEN <= number < KEYS else ("r", LARGE[0])
        place = {"table": table, "lsn": number, "sequence": json.dumps([str(number)] * 2)}
        row = {"id": number, "a": 0, "big": big}
        yield line(envelope(op, after=row, source=place), {"id": number}) + "\n"
    place |= {"lsn": DELETED + 1, "sequence": json.dumps([str(DELETED + 1)] * 2)}
    yield line(envelope("d", source=place), {"id": DELETED}) + "\n"


def written_pipeline(name: str, lake: LakeSettings, folder: Path) -> Pipeline:
    """Return a pipeline whose tables have the rows after one cycle; deleted ones of `still` stay."""
    texts = (text for table in ("still", "moving") for text in rows_before(table))
    (folder / "events.jsonl").write_text("".join(texts))
    columns = dict.fromkeys((STILL, MOVING), COLUMNS)
    source_settings = settings_with(input=FilesInput(str(folder)), strategy="enrich", columns=columns)
    options = {STILL: TableOptions(soft_delete=True)}
    return open_pipeline(PipelineSettings(name, source_settings, lake, table_options=options))


@pytest.fixture(scope="module")
def pipeline(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path_factory: pytest.TempPathFactory
) -> Pipeline:
    """Provide such a pipeline after its first cycle."""
    return sync(written_pipeline("complete", session_lake, tmp_path_factory.mktemp("complete")), spark)


def played(dice: random.Random, *, moves: bool, truncates: bool) -> list[RowChange]:
    """Return some changes of a table's rows."""
    database = Database({number: {"a": 0, "big": LARGE[0]} for number in range(KEYS)})
    for _ in range(120):
        number = dice.randrange(KEYS + 5)
        value = dice.choice([..., ..., ..., *LARGE, "short", None])
        kind = dice.choices(["update", "insert", "delete", "move"], [12, 3, 3, 2 if moves else 0])[0]
        if kind == "update":
            database.update(number, value)
        elif kind == "insert" and value is not ...:
            database.insert(number, value)
        elif kind == "delete":
            database.delete(number)
        elif kind == "move":
            database.move(number, dice.randrange(KEYS + 5))
        elif truncates and not dice.randrange(8):
            database.truncate(number)
    return database.changes


def ordered_of(changes: Mapping[str, Sequence[RowChange]], dice: random.Random) -> list[dict[str, Any]]:
    """Return changes of tables as the order of a cycle has them, the tables' mixed."""
    places = [name for name, table_changes in changes.items() for _ in table_changes]
    dice.shuffle(places)
    coming = {name: iter(table_changes) for name, table_changes in changes.items()}
    return [
        {
            "table_name": name,
            "change_kind": change.mod_type.lower(),
            "transaction_id": f"of {ordinal}",
            "keys": change.key.replace(" ", ""),
            "previous_keys": change.previous_key and change.previous_key.replace(" ", ""),
            "new_values": json.dumps(change.new_values) if change.new_values is not None else None,
            "unavailable_columns": list(change.unavailable) or None,
            "is_whole_row": not change.unavailable,
            "ordinal": ordinal,
            "ordering_key": f"{ordinal:09d}",
            "unsound": False,
        }
        for ordinal, name in enumerate(places, start=1_000)
        for change in [next(coming[name])]
    ]


def completed_few(
    pipeline: Pipeline, spark: "SparkSession", rows: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the changes of a small batch, completed, in the order of the log; none if that needs tasks."""
    ordered = spark.createDataFrame(pa.Table.from_pylist(rows, ORDERED)).toArrow()
    with interpreting(spark, when=True):
        completed = complete_few(pipeline, spark, ordered, 1)
    return completed.to_pylist() if completed is not None else []


def completed_by_tasks(
    pipeline: Pipeline, spark: "SparkSession", rows: Sequence[dict[str, Any]], max_rows: int = MAX_ROWS
) -> list[dict[str, Any]]:
    """Return the changes of any batch, completed, in the order of the log."""
    ordered = spark.createDataFrame(pa.Table.from_pylist(rows, ORDERED))
    with ExitStack() as cache, interpreting(spark, when=True):
        frame = complete_changes(pipeline, spark, ordered, 1, cache, max_rows)
        completed: list[dict[str, Any]] = frame.orderBy("ordinal").toArrow().to_pylist()
    return completed


def moving_rows(rows: Sequence[Mapping[str, Any]]) -> Collection[RowId]:
    """Return the rows that changes of keys connect, where any of these lacks values."""
    moves = [row for row in rows if row["previous_keys"]]
    links = [((row["table_name"], row["keys"]), (row["table_name"], row["previous_keys"])) for row in moves]
    incomplete = {(row["table_name"], row["keys"]) for row in moves if row["unavailable_columns"]}
    return key_chains_of(incomplete, links).keys()


def as_omitted(rows: Sequence[dict[str, Any]], completed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes of a batch if only values of rows whose keys change are looked for."""
    moved = moving_rows(rows)
    return [
        after if (before["table_name"], before["keys"]) in moved else before
        for before, after in zip(rows, completed, strict=True)
    ]


def with_strategy(pipeline: Pipeline, strategy: Strategy) -> Pipeline:
    """Return the pipeline with another strategy."""
    source = pipeline.settings.source
    assert isinstance(source, DebeziumSettings)
    return open_pipeline(replace(pipeline.settings, source=replace(source, strategy=strategy)))


def as_the_model(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes of a batch as the rows that the tables and the log have complete them."""
    small, whole = read_members('{"a":0}'), read_members(json.dumps({"a": 0, "big": LARGE[0]}))
    stored = {
        (table, f'{{"id":{number}}}'): whole if number < UNSEEN else small
        for table in (STILL, MOVING)
        for number in range(KEYS)
    }
    log = [RowChange(*row_id, ModType.SNAPSHOT, values) for row_id, values in stored.items()]
    deleted = MOVING, f'{{"id":{DELETED}}}'
    log += [RowChange(*deleted, ModType.SNAPSHOT, whole), RowChange(*deleted, ModType.DELETE)]
    logged = [ChainChange.of(row) for row in rows]
    changes = resolve([item.change for item in logged], stored, log)
    return [
        {
            **row,
            "new_values": item.values_of(change),
            "unavailable_columns": list(change.unavailable) or None,
            "is_whole_row": not change.unavailable,
        }
        if item.change.unavailable
        else row
        for row, item, change in zip(rows, logged, changes, strict=True)
    ]


def test_batches_are_completed_as_the_model_says(pipeline: Pipeline, spark: "SparkSession") -> None:
    """Values are found, or unresolved, and nothing else changes, wherever that is done.

    Where the log is not to be completed, only values of rows whose keys change are looked for. A row that is
    followed from the log is left to the tasks.
    """
    dice = random.Random(20261122)  # noqa: S311  a test's input, not a secret
    # The source has not reported that the row exists again.
    unreported = RowChange(STILL, json.dumps({"id": DELETED}), ModType.UPDATE, {"a": 1}, ("big",))
    # The first half of a key change was in the cycle before.
    parted = RowChange(MOVING, json.dumps({"id": MOVED}), ModType.INSERT, {"a": 2}, ("big",))
    still, moving = (
        [*played(dice, moves=False, truncates=True), unreported],
        played(dice, moves=True, truncates=False),
    )
    rows = ordered_of({STILL: still, MOVING: moving}, dice)
    expected = as_the_model(rows)
    assert expected == completed_few(pipeline, spark, rows)
    omitting = with_strategy(pipeline, Strategy.OMIT)
    assert as_omitted(rows, expected) == completed_few(omitting, spark, rows)
    rows = ordered_of({STILL: still, MOVING: [*moving, replace(parted, previous_key=unreported.key)]}, dice)
    expected = as_the_model(rows)
    assert completed_few(pipeline, spark, rows) == []
    assert expected == completed_by_tasks(pipeline, spark, rows, 0)
    assert expected == completed_by_tasks(pipeline, spark, rows)
    assert as_omitted(rows, expected) == completed_by_tasks(omitting, spark, rows)


def test_what_goes_to_quarantine_gives_no_value(pipeline: Pipeline, spark: "SparkSession") -> None:
    """A value of a refused change gets into no other one, and a refused truncate takes no row away."""
    key = json.dumps({"id": 1})
    changes = [
        RowChange(STILL, key, ModType.UPDATE, {"id": 1, "a": 1, "big": "refused"}),
        RowChange(STILL, "", ModType.TRUNCATE),
        RowChange(STILL, key, ModType.UPDATE, {"id": 1, "a": 2}, ("big",)),
    ]
    rows = ordered_of({STILL: changes}, random.Random(1))  # noqa: S311  one table is not mixed
    rows = [{**row, "unsound": not row["unavailable_columns"]} for row in rows]
    for completed in (completed_few, completed_by_tasks):
        actual = completed(pipeline, spark, rows)
        assert rows[:2] == actual[:2]
        assert json.loads(actual[2]["new_values"])["big"] == LARGE[0]


class NotedTasks(Progress):
    """Notes in how many tasks exchanges go when a step begins."""

    def __init__(self, spark: "SparkSession") -> None:
        super().__init__()
        self.spark, self.tasks = spark, dict[str, str | None]()

    @contextmanager
    def step(self, name: str, unit: str = "", total: int | None = None, done: int = 0) -> Iterator[Step]:
        """Yield a step that runs within the context."""
        self.tasks[name] = self.spark.conf.get("spark.sql.shuffle.partitions")
        with super().step(name, unit, total, done) as begun:
            yield begun


@pytest.mark.usefixtures("many_tasks")
def test_a_table_that_is_behind_is_not_built_in_one_task(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """The batch is small; the table that has its values may have to be built from all of the log."""
    written = written_pipeline("behind", session_lake, tmp_path)
    read_generations(written, spark)
    order_changes(written, spark)
    noted = NotedTasks(spark)
    update = RowChange(STILL, json.dumps({"id": 1}), ModType.UPDATE, {"id": 1, "a": 2}, ("big",))
    rows = ordered_of({STILL: [update]}, random.Random(1))  # noqa: S311  one table is not mixed
    (completed,) = completed_few(replace(written, progress=noted), spark, rows)
    assert json.loads(completed["new_values"])["big"] == LARGE[0]
    assert noted.tasks == {"merge": "3"}
