"""Opening a lake: made where it is missing, read in every older format, refused in a newer one."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_platform.errors import LakeDamaged, LakeFormatUnknown
from cdc_platform.lake.catalog.column_properties import BOUNDS, DICTIONARY
from cdc_platform.lake.catalog.lake import ORIGINAL_TABLES, SYSTEM_TABLES, Lake
from cdc_platform.lake.catalog.lake_settings import FORMAT_PROPERTY, LakeSettings
from cdc_platform.lake.catalog.table_uuids import KEEPERS, UUIDS_PROPERTY
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.control import load_lineage
from cdc_platform.lake.state.cuts import Cut, append_cut, list_cuts
from cdc_platform.lake.state.quarantine import load_quarantine
from cdc_platform.model.base.schemas import FORMAT_VERSION, QUARANTINE_ROWS
from cdc_platform.model.base.stored_names import CHECK_RESULTS, CUT, CYCLE, LOG, QUARANTINE, RAW
from cdc_platform.pipeline.on_demand.status import read_status
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform_tests.lake.stored_lake import FOLDER, restore_lake
from cdc_platform_tests.pipeline.bank import SECOND, feed_cycle
from cdc_platform_tests.support.pipelines import (
    ACCOUNTS,
    START,
    TRANSFERS,
    log_rows,
    make_pipeline,
    quarantined_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_FORMAT = FOLDER / "lake-v1.json"


def restored(settings: LakeSettings, name: str) -> Pipeline:
    """Return a pipeline on a lake in the first format: two cycles of the bank, one record in quarantine."""
    restore_lake(FIRST_FORMAT, settings, name)
    return make_pipeline(settings, (ACCOUNTS, TRANSFERS), name=name)


def test_a_lake_is_made_where_it_is_missing(tmp_path: Path) -> None:
    """Folder, catalog, namespaces and the platform's tables are made at the first use, and only then."""
    lake = Lake(LakeSettings(str(tmp_path / "new" / "lake")), "bank")
    assert not (tmp_path / "new").exists()
    assert lake.table_names() == ()
    assert (tmp_path / "new" / "lake" / "catalog.db").exists()
    table_names = {identifier[-1] for identifier in lake.catalog.list_tables("bank__cdc")}
    assert set(SYSTEM_TABLES) == table_names
    assert lake.table("accounts") is None


def test_every_own_table_has_its_format(tmp_path: Path) -> None:
    """A later version can identify the format that it reads."""
    lake = Lake(LakeSettings(str(tmp_path)), "bank")
    for name in SYSTEM_TABLES:
        assert str(FORMAT_VERSION) == lake.system_table(name).properties[FORMAT_PROPERTY]


@pytest.mark.parametrize("prefix", [DICTIONARY, BOUNDS])
@pytest.mark.parametrize("delivers_events", [False, True])
def test_columns_without_a_dictionary_or_bounds_are_there(
    tmp_path: Path, delivers_events: bool, prefix: str
) -> None:
    """Column comments name columns that the tables have; Iceberg ignores any other name."""
    lake = Lake(LakeSettings(str(tmp_path)), "shop", delivers_events=delivers_events)
    for name in (RAW, LOG):
        table = lake.system_table(name)
        columns = [key.removeprefix(prefix) for key in table.properties if key.startswith(prefix)]
        assert len(columns) >= 4
        assert columns == [
            table.schema().find_column_name(table.schema().find_field(column).field_id) for column in columns
        ]


@pytest.mark.parametrize("version", [str(FORMAT_VERSION + 1), "next", "-1", ""])
def test_a_lake_of_a_newer_platform_is_refused(tmp_path: Path, version: str) -> None:
    """Nothing is written into a format that may mean something else."""
    settings = LakeSettings(str(tmp_path))
    table = Lake(settings, "bank").system_table(CUT)
    with table.transaction() as transaction:
        transaction.set_properties({FORMAT_PROPERTY: version})
    with pytest.raises(LakeFormatUnknown, match=f"format version {version}, this platform knows"):
        Lake(settings, "bank").table_names()


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        (
            "p__cdc/change_log/metadata/*.metadata.json",
            None,
            "file .*metadata.json: it no longer exists",
        ),
        *(
            ("p__cdc/change_log/metadata/*.metadata.json", content, f"table `p__cdc.change_log`: .*{text}")
            for content, text in {
                "{": "is not a metadata file",
                "[]": "is not a metadata file",
                '{"snapshots":[{}]}': "is not a metadata file",
                '{"format-version":2}': "validation errors",
            }.items()
        ),
        ("catalog.db", None, "its catalog .*: it no longer exists"),
        ("catalog.db", "", "its catalog .*: it no longer exists"),
        ("catalog.db", "not a database, whatever it is called", "its catalog .*: file is not a database"),
    ],
)
def test_a_damaged_lake_names_its_damage(tmp_path: Path, name: str, content: str | None, text: str) -> None:
    """A catalog that is gone or truncated is an error with a remedy; no new catalog takes its place."""
    settings = LakeSettings(str(tmp_path))
    _ = Lake(settings, "p").catalog
    file = max(tmp_path.glob(name))
    file.unlink()
    if content is not None:
        file.write_text(content)
    for is_reader in (True, False):
        with pytest.raises(LakeDamaged, match=text):
            Lake(settings, "p", is_reader=is_reader).system_table(LOG)


@pytest.mark.parametrize("name", ORIGINAL_TABLES)
@pytest.mark.parametrize("is_reader", [False, True])
def test_an_own_table_that_another_program_has_dropped_is_not_created_again(
    tmp_path: Path, name: str, is_reader: bool
) -> None:
    """An empty one would show nothing of what is lost, and the others would no longer fit to it."""
    pipeline = restored(LakeSettings(str(tmp_path)), "old")
    pipeline.lake.catalog.drop_table(f"old__cdc.{name}")
    for _ in range(2):
        with pytest.raises(LakeDamaged, match=rf"table `old__cdc\.{name}`: another program has dropped it"):
            _ = replace(pipeline.lake, is_reader=is_reader).catalog


@pytest.mark.parametrize("name", sorted({*SYSTEM_TABLES} - {*ORIGINAL_TABLES, CHECK_RESULTS}))
def test_a_dropped_table_that_older_lakes_lack_is_no_beginning(tmp_path: Path, name: str) -> None:
    """A lake that had it is no older one: what the table had would count as nothing. None is created."""
    lake = Lake(LakeSettings(str(tmp_path)), "bank")
    lake.catalog.drop_table(f"bank__cdc.{name}")
    for is_reader in (False, True):
        with pytest.raises(LakeDamaged, match=rf"table `bank__cdc\.{name}`: another program has dropped it"):
            _ = replace(lake, is_reader=is_reader).catalog


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("name", sorted({*SYSTEM_TABLES} - {CHECK_RESULTS}))
def test_an_own_table_that_another_program_has_replaced_is_no_beginning(
    tmp_path: Path, name: str, is_open: bool
) -> None:
    """What it had would count as nothing, for the process that had it open, for new ones and for readers."""
    pipeline = restored(LakeSettings(str(tmp_path)), "old")
    schema = pipeline.lake.system_table(name).schema()
    pipeline.lake.catalog.drop_table(f"old__cdc.{name}")
    pipeline.lake.catalog.create_table(f"old__cdc.{name}", schema)
    opened_again = replace(pipeline.lake), replace(pipeline.lake, is_reader=True)
    for lake in [pipeline.lake] if is_open else opened_again:
        with pytest.raises(LakeDamaged, match=rf"table `old__cdc\.{name}`: another program has replaced it"):
            lake.system_table(name)


def test_a_log_that_no_cycle_has_extended_needs_no_raw_records(tmp_path: Path) -> None:
    """Its first snapshot has no rows; a start may have taken back the only commit of raw records."""
    lake = Lake(LakeSettings(str(tmp_path)), "bank")
    log = lake.system_table(LOG)
    log.append(log.schema().as_arrow().empty_table())
    for is_reader in (False, True):
        assert replace(lake, is_reader=is_reader).system_table(RAW).metadata.snapshots == []


@pytest.mark.parametrize("is_reader", [False, True])
def test_raw_records_of_before_their_first_commit_are_no_beginning(tmp_path: Path, is_reader: bool) -> None:
    """A table that alone was restored from an older copy has the same UUID."""
    lake = Lake(LakeSettings(str(tmp_path)), "bank")
    first = lake.system_table(RAW).metadata_location
    for name in (RAW, LOG):
        table = lake.system_table(name)
        table.append(table.schema().as_arrow().empty_table(), snapshot_properties={CYCLE: "1"})
    lake.catalog.drop_table(f"bank__cdc.{RAW}")
    lake.catalog.register_table(f"bank__cdc.{RAW}", first)
    with pytest.raises(LakeDamaged, match="raw_change_records`: another program has replaced it"):
        _ = replace(lake, is_reader=is_reader).catalog


def test_threads_that_open_a_new_lake_at_once_get_the_same_one(tmp_path: Path) -> None:
    """A part of the catalog that another thread creates at the moment is taken as it is."""
    at_once = threading.Barrier(4)

    def opened(folder: Path) -> list[str]:
        at_once.wait()
        lake = Lake(LakeSettings(str(folder)), "bank")
        return [str(lake.system_table(name).metadata.table_uuid) for name in SYSTEM_TABLES]

    with ThreadPoolExecutor(4) as threads:
        for number in range(3):
            first, *others = threads.map(opened, [tmp_path / str(number)] * 4)
            assert others == [first] * 3


def test_a_lake_whose_creation_was_interrupted_gets_the_other_tables(tmp_path: Path) -> None:
    """No table has a commit of data, nor the UUIDs of all, before all of them exist."""
    lake = Lake(LakeSettings(str(tmp_path)), "bank")
    for keeper in KEEPERS:
        with lake.system_table(keeper).transaction() as transaction:
            transaction.remove_properties(UUIDS_PROPERTY)
    lake.catalog.drop_table(f"bank__cdc.{CUT}")
    assert replace(lake).system_table(CUT).metadata.snapshots == []


@pytest.mark.parametrize("missing", ["metadata/snap-*.avro", "data/*.parquet"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    """Where a manifest list or data has gone, readers get the file's name, and what can be done."""
    lake = Lake(LakeSettings(str(tmp_path)), "p")
    append_cut(lake, Cut(1, START, 1, {}, START))
    (file,) = tmp_path.glob(f"*/cuts/{missing}")
    file.unlink()
    with pytest.raises(LakeDamaged, match=f"file .*{file.name}: it no longer exists. Restore"):
        list_cuts(lake)


def test_names_are_quoted_for_spark(tmp_path: Path) -> None:
    """Names that a lake cannot have are made safe; a branch is one more part."""
    lake = Lake(LakeSettings(str(tmp_path)), "bank")
    assert lake.spark_table("accounts") == "`lake`.`bank`.`accounts`"
    assert lake.spark_table("accounts", "cycle") == "`lake`.`bank`.`accounts`.`branch_cycle`"
    assert lake.spark_system_table(LOG) == "`lake`.`bank__cdc`.`change_log`"
    assert lake.spark_table("a`b").startswith("`lake`.`bank`.`a_b_")


def test_the_first_format_is_still_read(tmp_path: Path) -> None:
    """Progress, lineage, cuts and log of a lake in the oldest format are understood."""
    pipeline = restored(LakeSettings(str(tmp_path)), "old")
    position = START + 3 * SECOND - 1
    assert [read_mark(pipeline.lake.system_table(name)).cycle for name in (RAW, LOG)] == [2, 2]
    assert read_mark(pipeline.lake.system_table(LOG)).position_micros == position
    assert [(cut.cut, cut.cycle) for cut in list_cuts(pipeline.lake)] == [(1, 1), (2, 2)]
    lineage = load_lineage(pipeline.lake)
    assert lineage is not None
    assert [partition.position_micros for partition in lineage.partitions.values()] == [position]
    assert len(log_rows(pipeline)) == 8
    assert len(quarantined_rows(pipeline)) == 1
    status = read_status(pipeline)
    assert (status.cycle, status.watermark_micros, status.quarantined) == (2, position, 1)


def test_an_older_lake_gets_the_columns_that_it_lacks(tmp_path: Path) -> None:
    """They are added when the lake is opened, are NULL in what it holds, and are added once."""
    settings = LakeSettings(str(tmp_path))
    pipeline = restored(settings, "old")
    table = pipeline.lake.system_table(QUARANTINE)
    assert QUARANTINE_ROWS.names == list(table.schema().column_names)
    assert table.properties["commit.retry.num-retries"] == "0"
    (record,) = load_quarantine(pipeline.lake)
    assert (record.is_open, record.origin) == (True, None)
    again = Lake(settings, "old").system_table(QUARANTINE)
    assert table.metadata_location == again.metadata_location


@pytest.mark.integration
def test_the_first_format_is_continued(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """The next cycle is ordered after what the oldest format holds."""
    pipeline = restored(session_lake, "continued")
    before = log_rows(pipeline)
    feed_cycle(pipeline, 3)
    order_changes(pipeline, spark)
    after = log_rows(pipeline)
    assert before == after[: len(before)]
    assert len(after) == len(before) + 3
