"""The source tables that a pipeline materialises."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_platform.errors import SettingError
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.column_versions import Bound, ColumnHistory, ColumnVersion
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.schema.schema_evolution import find_exclusions
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.sources.debezium.written_events import settings_with
from cdc_platform_tests.support.pipelines import make_pipeline, source_of

WATCHED = ("transfers", "accounts", "Accounts")


def choosing(folder: Path, *names: str) -> Pipeline:
    """Return a pipeline whose stream watches three tables, and that is configured to take some of them."""
    schemas = [table(name, {"id": "INT64"}, {}) for name in WATCHED]
    pipeline = make_pipeline(LakeSettings(str(folder)), schemas)
    return replace(pipeline, settings=replace(pipeline.settings, tables=names or None))


def test_chosen_tables_are_sorted(tmp_path: Path) -> None:
    """The order in the file does not matter."""
    assert [schema.name for schema in choosing(tmp_path, *WATCHED[:2]).tables] == ["accounts", "transfers"]


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("accounts", "loans"), "has no column: 'loans'. It watches Accounts, accounts, transfers"),
        (WATCHED, "which ignores case: `accounts` and `Accounts`"),
    ],
)
def test_tables_that_cannot_be_had_are_refused(tmp_path: Path, names: tuple[str, ...], problem: str) -> None:
    """A table that the stream does not watch, and two by name that one catalog takes for one, are errors."""
    with pytest.raises(SettingError, match=problem):
        _ = choosing(tmp_path, *names).tables


def test_options_of_a_table_that_is_not_watched_yet_wait(tmp_path: Path) -> None:
    """A table of the source may be watched later, and is reported; one that the source lacks is a mistake."""
    watched = table("accounts", {"id": "INT64"}, {})
    options = {"loans": TableOptions(history=True)}
    pipeline = make_pipeline(LakeSettings(str(tmp_path)), (watched,), options=options)
    source_of(pipeline).schema_at = lambda micros: SchemaRead(micros, (watched,), {"loans": ("id",)}, {})
    assert [schema.name for schema in pipeline.tables] == ["accounts"]
    (text,) = find_exclusions(pipeline)
    assert "`loans` is not watched: its `table_options` take effect" in text
    pipeline.forget_tables()
    source_of(pipeline).schema_at = None
    with pytest.raises(SettingError, match=r"`table_options` names a table that .*'loans'"):
        _ = pipeline.tables
    pipeline.use_history(
        SchemaHistory(
            cycle=1, tables={"accounts": ColumnHistory("accounts")}, other_names=frozenset({"loans"})
        )
    )
    assert [schema.name for schema in pipeline.tables] == ["accounts"]


def test_a_table_of_an_event_source_that_no_event_names_is_reported(tmp_path: Path) -> None:
    """It may arrive later or have another name: the status names it with those that have arrived."""
    settings = PipelineSettings(
        "shop",
        settings_with(),
        LakeSettings(str(tmp_path)),
        tables=("orders", "public.Items", "public.items"),
        table_options={"public.Items": TableOptions(history=True)},
    )
    pipeline = open_pipeline(settings)
    assert pipeline.findings(SchemaHistory()) == ()
    columns = {name: ColumnHistory(name) for name in ("public.items", "public.orders")}
    texts = pipeline.findings(SchemaHistory(cycle=1, tables=columns))
    assert [text.partition(":")[0] for text in texts] == [
        "The settings name `orders`, but no change has",
        "The settings name `public.Items`, but no change has",
    ]
    assert "the tables are: `public.items`, `public.orders`." in texts[0]
    assert "the tables are: none yet." in pipeline.findings(SchemaHistory(cycle=1))[0]


def test_a_key_that_no_lake_can_have_is_refused(tmp_path: Path) -> None:
    """The error names column and table, and the other tables continue once they are named."""
    tables = (table("odd", {"_pos": "INT64"}, {}), table("plain", {"id": "INT64"}, {}))
    pipeline = make_pipeline(LakeSettings(str(tmp_path)), tables)
    with pytest.raises(SettingError, match="`odd`, whose key column `_pos`"):
        _ = pipeline.tables
    chosen = replace(pipeline, settings=replace(pipeline.settings, tables=("plain",)))
    assert [schema.name for schema in chosen.tables] == ["plain"]


def test_a_column_like_those_of_deleted_rows_is_left_out(tmp_path: Path) -> None:
    """It conflicts with no option, since the lake has its own column of the name, and it is reported."""
    watched = table("accounts", {"id": "INT64"}, {"__Deleted": "STRING(MAX)"})
    options = {"accounts": TableOptions(soft_delete=True)}
    pipeline = make_pipeline(LakeSettings(str(tmp_path)), (watched,), options=options)
    assert [column.name for column in pipeline.tables[0].columns] == ["id"]
    assert "names that are reserved in the lake are in the change log only" in find_exclusions(pipeline)[0]


def history_since(name: str, cycle: int) -> ColumnHistory:
    """Return a table that came up in a cycle."""
    key = ColumnVersion("id", "id", ColumnType("INT64"), True, 1, Bound(cycle, None))
    return ColumnHistory(name, (key,))


def test_of_two_names_that_differ_in_case_the_first_is_had(tmp_path: Path) -> None:
    """Of new tables the first by name is taken, later the one known first; the other one is reported."""
    pipeline = choosing(tmp_path)
    assert [schema.name for schema in pipeline.tables] == ["Accounts", "transfers"]
    dropped = replace(history_since("accounts", 1), is_watched=False, is_dropped=True)
    others = {name: history_since(name, 2) for name in ("transfers", "Accounts")}
    pipeline.use_history(SchemaHistory(cycle=2, tables={**others, "accounts": dropped}))
    assert [schema.name for schema in pipeline.tables] == ["accounts", "transfers"]
    text = pipeline.findings(pipeline.schema_history)[0]
    assert text.startswith("`Accounts` is not in the lake: `accounts` has that name in the lake")
    chosen = replace(pipeline, settings=replace(pipeline.settings, tables=("Accounts", "transfers")))
    chosen.use_history(pipeline.schema_history)
    assert [schema.name for schema in chosen.tables] == ["Accounts", "transfers"]
    (text,) = chosen.findings(chosen.schema_history)
    assert text.startswith("`accounts` was dropped")


@pytest.mark.parametrize(
    ("lake", "files", "is_refused"),
    [
        ("/data/events/lake", "/data/events", True),
        ("/data/events", "/data/x/../events/", True),
        ("file:///data/events/lake", "/data/events", True),
        ("gs://bucket/shop/lake", "gcs://bucket/shop/", True),
        ("s3://bucket/shop/lake", "s3a://bucket/shop?endpoint_override=store:9000", True),
        ("/data/events-lake", "/data/events", False),
        ("/data/lake", "/data/lake/events", False),
        ("gs://bucket/lake", "gs://bucket/shop", False),
    ],
)
def test_a_lake_in_the_folder_of_its_files_is_refused(lake: str, files: str, *, is_refused: bool) -> None:
    """Iceberg's metadata are Avro and JSON files, too, and would become events; spools read own names."""
    catalog = {"type": "rest", "uri": "http://catalog"}
    lakes = (LakeSettings(lake, catalog), LakeSettings("/elsewhere", {**catalog, "warehouse": lake}))
    for source in (DatastreamSettings(files), DebeziumSettings(FilesInput(files))):
        for settings in lakes:
            with (
                pytest.raises(SettingError, match="would be read as events") if is_refused else nullcontext()
            ):
                PipelineSettings("shop", source, settings)
    spool = DebeziumSettings(EngineInput("host", "database", "user", files))
    assert PipelineSettings("shop", spool, lakes[0]).source is spool
