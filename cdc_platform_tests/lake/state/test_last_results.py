"""The last results of checks in the lake: one row a check."""

import logging
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from cdc_platform.errors import LakeDamaged
from cdc_platform.lake.catalog.damage import drop_results
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.catalog.sql_catalog import LakeSqlCatalog
from cdc_platform.lake.commits.snapshots import KEPT_NEWEST
from cdc_platform.lake.state import last_results
from cdc_platform.lake.state.last_results import LastResult, load_results, save_results
from cdc_platform.model.base.schemas import CHECK_RESULT_ROWS
from cdc_platform.model.base.stored_names import CHECK_RESULTS
from cdc_platform_tests.lake.stored_lake import forget_metadata
from cdc_platform_tests.support.interruptions import interrupt_once

METADATA_FILES: Final = 20
"""Former metadata files that Iceberg keeps."""


def result(
    name: str, asset: str, *, passed: bool = True, at_s: float = 1.5, is_partial: bool = False
) -> LastResult:
    """Return a result of a check on an asset."""
    return LastResult(name, asset, passed, False, at_s, f"{name} of {asset}", is_partial=is_partial)


def without(name: str) -> Callable[[LastResult], bool]:
    """Return whether a result is of another check than one of which all results are new."""
    return lambda stored: stored.name != name


def test_a_newer_result_replaces_the_former_one(tmp_path: Path) -> None:
    """Results are kept by check and asset; other checks keep theirs, and a reader gets all of them."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    kept, former = result("exactly_once", "bank__cdc/change_log"), result("keys_unique", "bank/accounts")
    save_results(lake, [former, kept])
    newer = result("keys_unique", "bank/accounts", passed=False, at_s=2.25)
    save_results(lake, [newer], stays=without("keys_unique"))
    reader = Lake(lake.settings, "bank", is_reader=True)
    assert load_results(reader) == (kept, newer)
    assert newer.has_failed
    assert lake.system_table(CHECK_RESULTS).scan().to_arrow().num_rows == 2


def test_a_result_of_a_table_that_is_gone_goes_with_a_whole_round(tmp_path: Path) -> None:
    """A check of all tables leaves no result of others; a check of one table leaves all."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    tables = [result("fresh", f"bank/{name}") for name in ("a", "b")]
    save_results(lake, tables)
    save_results(lake, tables[:1])
    assert load_results(lake) == tuple(tables)
    save_results(lake, tables[:1], stays=without("fresh"))
    assert load_results(lake) == tuple(tables[:1])
    save_results(lake, [], stays=without("keys_unique"))
    assert load_results(lake) == tuple(tables[:1])
    save_results(lake, [], stays=without("fresh"))
    assert load_results(lake) == ()


def test_the_same_outcome_need_not_be_stored_again(tmp_path: Path) -> None:
    """What the lake has decides, since other processes store results of the same check."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    passed, again = (result("fresh", "bank/accounts", at_s=at_s) for at_s in (1.5, 2.5))
    failed = result("fresh", "bank/accounts", passed=False)
    for news, stored in ((passed, passed), (again, passed), (failed, failed), (again, again)):
        save_results(lake, [news], unchanged_after_s=math.inf)
        assert load_results(lake) == (stored,)


def test_a_lake_that_accepts_no_result_is_only_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What a check has found must not become an error of the table that shows it."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    assert load_results(lake) == ()
    forget_metadata(lake.settings, lake.system_namespace, CHECK_RESULTS)
    with caplog.at_level(logging.WARNING):
        save_results(lake, [result("fresh", "bank/accounts")])
    assert "The results of checks are not in the lake: LakeDamaged: " in caplog.text


def local(location: str) -> Path:
    """Return the path of a file of the lake."""
    return Path(location.removeprefix("file://"))


def lose_metadata(table: Table) -> None:
    """Delete what the catalog names."""
    local(table.metadata_location).unlink()


def garble_metadata(table: Table) -> None:
    """Write something else over what the catalog names."""
    local(table.metadata_location).write_bytes(b"\xff{")


def lose_manifest_list(table: Table) -> None:
    """Delete the list of the newest manifests."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    local(snapshot.manifest_list).unlink()


def lose_manifests(table: Table) -> None:
    """Delete the manifests that the newest list names."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        local(manifest.manifest_path).unlink()


def lose_rows(table: Table) -> None:
    """Delete the files of rows."""
    for task in table.scan().plan_files():
        local(task.file.file_path).unlink()


def garble_rows(table: Table) -> None:
    """Write something else over the files of rows."""
    for task in table.scan().plan_files():
        local(task.file.file_path).write_bytes(b"PAR1 and nothing more")


def add_foreign_row(table: Table) -> None:
    """Append a row that the platform cannot have written."""
    table.append(pa.Table.from_pylist([{"name": "fresh"}], CHECK_RESULT_ROWS))


DAMAGES: Final = (
    lose_metadata,
    garble_metadata,
    lose_manifest_list,
    lose_manifests,
    lose_rows,
    garble_rows,
    add_foreign_row,
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_table_begins_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Table], None]
) -> None:
    """The next check says so and stores its results: readers see these, and another one adds its own."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    save_results(lake, [result("exactly_once", "bank__cdc/change_log")])
    damage(lake.system_table(CHECK_RESULTS))
    reader = Lake(lake.settings, "bank", is_reader=True)
    with pytest.raises(LakeDamaged, match="Only the last check results are lost"):
        load_results(reader)
    new = [result(name, "bank/accounts") for name in ("fresh", "keys_unique")]
    with caplog.at_level(logging.WARNING):
        for each in new:
            save_results(Lake(lake.settings, "bank"), [each])
    assert load_results(reader) == tuple(new)
    (message,) = caplog.messages
    assert message.startswith("The lake is damaged, ")
    assert "the next check of a cycle, or `cdc-platform check`, stores new ones." in message
    assert "Restore" not in message


@pytest.mark.parametrize(
    ("module", "look", "lost"),
    [(last_results, "_read_or_forget", lose_manifest_list), (LakeSqlCatalog, "_read", lose_metadata)],
)
def test_results_that_another_process_replaces_are_not_damaged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    module: object,
    look: str,
    lost: Callable[[Table], None],
) -> None:
    """A process that pauses after it has looked at the catalog finds the files of that version gone."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    former, other, own = (result(name, "bank/accounts") for name in ("fresh", "keys_unique", "rows_whole"))
    save_results(lake, [former])
    former_version, late = lake.system_table(CHECK_RESULTS), Lake(lake.settings, "bank")
    # What a process has read before is read again.
    vars(late.catalog)["_tables"].clear()

    def rival() -> None:
        save_results(lake, [other])
        lost(former_version)
        last_results._read.cache_clear()  # noqa: SLF001  the other process has a separate cache

    interrupt_once(monkeypatch, module, look, rival)
    save_results(late, [own])
    assert load_results(lake) == (former, other, own)
    assert caplog.messages == []


def test_two_processes_drop_the_same_damaged_results(tmp_path: Path) -> None:
    """The one that comes second finds them gone, or begun again; its own start goes on."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    lose_metadata(lake.system_table(CHECK_RESULTS))
    name = f"{lake.system_namespace}.{CHECK_RESULTS}"
    for _ in range(2):
        drop_results(lake.catalog, name, LakeDamaged("table", "gone"))
    assert load_results(Lake(lake.settings, "bank")) == ()


def test_processes_store_their_results_at_the_same_time(tmp_path: Path) -> None:
    """A conflict loses nobody's results: the later commit adds its own to those of the other."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    results = [result(f"check_{number}", "bank__cdc/cut") for number in range(4)]
    lakes = [Lake(lake.settings, "bank") for _ in results]
    assert load_results(lake) == ()
    with ThreadPoolExecutor() as pool:
        calls = [
            partial(save_results, own, [found], stays=without(found.name))
            for own, found in zip(lakes, results, strict=True)
        ]
        assert all(future.result() is None for future in [pool.submit(call) for call in calls])
    assert load_results(lake) == tuple(results)


def test_a_lake_without_the_table_has_no_results(tmp_path: Path) -> None:
    """A reader of a lake that no process of this version has written to gets none, and creates nothing."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    lake.catalog.drop_table(f"{lake.system_namespace}.{CHECK_RESULTS}")
    assert load_results(Lake(lake.settings, "bank", is_reader=True)) == ()


def test_an_unchanged_result_is_stored_after_a_while(tmp_path: Path) -> None:
    """Until then a commit for its time alone is saved; a change is stored at once."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    for at_s, passed in ((0.0, True), (59.0, True), (60.0, True), (61.0, False)):
        save_results(lake, [result("fresh", "bank/cut", passed=passed, at_s=at_s)], unchanged_after_s=60.0)
        stored = [(found.at_s, found.passed) for found in load_results(lake)]
        assert stored == [(0.0 if at_s == 59.0 else at_s, passed)]


def test_a_result_of_a_clock_that_was_ahead_is_replaced(tmp_path: Path) -> None:
    """Otherwise the page would show a result of the future until the clock gets there."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    for at_s in (7200.0, 3600.0):
        save_results(lake, [result("fresh", "bank/cut", at_s=at_s)], unchanged_after_s=60.0)
        assert [found.at_s for found in load_results(lake)] == [at_s]


LOG: Final = "bank__cdc/change_log"


def test_a_failure_of_a_whole_look_outlasts_partial_looks(tmp_path: Path) -> None:
    """A check of the new part of the log says nothing of the part that has failed."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    failure = result("exactly_once", LOG, passed=False)
    partial = result("exactly_once", LOG, at_s=60.0, is_partial=True)
    save_results(lake, [failure])
    for later in (replace(partial, passed=False), partial):
        save_results(lake, [later])
        assert load_results(lake) == (failure,)
    whole = replace(failure, passed=True, at_s=90.0)
    save_results(lake, [whole])
    assert load_results(lake) == (whole,)
    later = replace(partial, at_s=120.0)
    save_results(lake, [later])
    assert load_results(lake) == (later,)


def test_a_whole_look_replaces_the_failure_of_a_partial_one(tmp_path: Path) -> None:
    """It has examined what the partial look did; another partial look replaces it, too."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    failure = result("exactly_once", LOG, passed=False, is_partial=True)
    for later in (result("exactly_once", LOG), result("exactly_once", LOG, is_partial=True)):
        save_results(lake, [failure])
        assert load_results(lake) == (failure,)
        save_results(lake, [later])
        assert load_results(lake) == (later,)


def test_results_of_checks_that_nobody_makes_leave(tmp_path: Path) -> None:
    """What no longer counts goes with the next result, of any check."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    former, kept, new = (result(name, LOG) for name in ("former_name", "kept", "new"))
    save_results(lake, [former, kept])
    save_results(lake, [new], stays=without("former_name"))
    assert load_results(lake) == (kept, new)


def test_writing_bounds_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Months of a check that cron starts leave few snapshots and files, without any maintenance."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    monkeypatch.setattr("cdc_platform.lake.commits.snapshots.SHORT_LIFE_S", -1)
    for at_s in range(70):
        save_results(lake, [result("exactly_once", LOG, at_s=at_s)])
        assert [found.at_s for found in load_results(lake)] == [at_s]
    table = lake.system_table(CHECK_RESULTS)
    snapshots = table.metadata.snapshots
    assert len(snapshots) <= 2 * KEPT_NEWEST
    folder = Path(table.location().removeprefix("file://"))
    files = {path.name for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")}
    # Each snapshot has a file of rows, a list, and manifests of what it added and removed.
    assert len(files) < 4 * len(snapshots) + METADATA_FILES + 5
    for snapshot in snapshots:
        # pyiceberg replaces rows in two snapshots of one commit, the first of which is empty.
        assert table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows <= 1
