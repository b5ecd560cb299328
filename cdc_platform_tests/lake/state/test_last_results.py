"""The last results of checks in the lake: one row a check."""

import logging
import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_platform.lake.catalog.lake import CHECKED, Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.last_results import LastResult, load_results, save_results
from cdc_platform.model.base.schemas import CHECK_RESULTS


def result(name: str, asset: str, *, passed: bool = True, at_s: float = 1.5) -> LastResult:
    """Return a result of a check on an asset."""
    return LastResult(name, asset, passed, is_warning=False, at_s=at_s, summary=f"{name} of {asset}")


def test_a_newer_result_replaces_the_former_one(tmp_path: Path) -> None:
    """Results are kept by check and asset; other checks keep theirs, and a reader gets all of them."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    kept, former = result("exactly_once", "bank__cdc/change_log"), result("keys_unique", "bank/accounts")
    save_results(lake, [former, kept])
    newer = result("keys_unique", "bank/accounts", passed=False, at_s=2.25)
    save_results(lake, [newer], all_of={"keys_unique"})
    reader = Lake(lake.settings, "bank", is_reader=True)
    assert load_results(reader) == (kept, newer)
    assert newer.has_failed
    assert lake.system_table(CHECKED).scan().to_arrow().num_rows == 2


def test_a_result_of_a_table_that_is_gone_goes_with_a_whole_round(tmp_path: Path) -> None:
    """A check of all tables leaves no result of others; a check of one table leaves all."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    tables = [result("fresh", f"bank/{name}") for name in ("a", "b")]
    save_results(lake, tables)
    save_results(lake, tables[:1])
    assert load_results(lake) == tuple(tables)
    save_results(lake, tables[:1], all_of={"fresh"})
    assert load_results(lake) == tuple(tables[:1])
    save_results(lake, [], all_of={"keys_unique"})
    assert load_results(lake) == tuple(tables[:1])
    save_results(lake, [], all_of={"fresh"})
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
    lake.system_table(CHECKED).append(pa.Table.from_pylist([{"name": "fresh"}], CHECK_RESULTS))
    with caplog.at_level(logging.WARNING):
        save_results(lake, [result("fresh", "bank/accounts")])
    assert "LakeDamaged: The lake is damaged, its table `check_results`" in caplog.text


def test_processes_store_their_results_at_the_same_time(tmp_path: Path) -> None:
    """A conflict loses nobody's results: the later commit adds its own to those of the other."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    results = [result(f"check_{number}", "bank__cdc/cut") for number in range(4)]
    lakes = [Lake(lake.settings, "bank") for _ in results]
    assert load_results(lake) == ()
    with ThreadPoolExecutor() as pool:
        calls = [
            partial(save_results, own, [found], all_of={found.name})
            for own, found in zip(lakes, results, strict=True)
        ]
        assert all(future.result() is None for future in [pool.submit(call) for call in calls])
    assert load_results(lake) == tuple(results)


def test_a_lake_without_the_table_has_no_results(tmp_path: Path) -> None:
    """A reader of a lake that no process of this version has written to gets none, and creates nothing."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    lake.catalog.drop_table(f"{lake.system_namespace}.{CHECKED}")
    assert load_results(Lake(lake.settings, "bank", is_reader=True)) == ()


def test_an_unchanged_result_is_stored_after_a_while(tmp_path: Path) -> None:
    """Until then a commit for its time alone is saved; a change is stored at once."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    for at_s, passed in ((0.0, True), (59.0, True), (60.0, True), (61.0, False)):
        save_results(lake, [result("fresh", "bank/cut", passed=passed, at_s=at_s)], unchanged_after_s=60.0)
        stored = [(found.at_s, found.passed) for found in load_results(lake)]
        assert stored == [(0.0 if at_s == 59.0 else at_s, passed)]
