"""The last results of checks in the lake: one row a check."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from cdc_platform.lake.catalog.lake import CHECKED, Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.last_results import LastResult, load_results, save_results


def result(name: str, asset: str, *, passed: bool = True, at_s: float = 1.5) -> LastResult:
    """Return a result of a check on an asset."""
    return LastResult(name, asset, passed, is_warning=False, at_s=at_s, summary=f"{name} of {asset}")


def test_a_newer_result_replaces_the_former_one(tmp_path: Path) -> None:
    """Results are kept by check and asset; other checks keep theirs, and a reader gets all of them."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    kept, former = result("exactly_once", "bank__cdc/change_log"), result("keys_unique", "bank/accounts")
    save_results(lake, [former, kept], of_all=True)
    newer = result("keys_unique", "bank/accounts", passed=False, at_s=2.25)
    save_results(lake, [newer], of_all=True)
    reader = Lake(lake.settings, "bank", is_reader=True)
    assert load_results(reader) == (kept, newer)
    assert newer.has_failed
    assert lake.system_table(CHECKED).scan().to_arrow().num_rows == 2


def test_a_result_of_a_table_that_is_gone_goes_with_a_whole_round(tmp_path: Path) -> None:
    """A check of all tables leaves no result of others; a check of one table leaves all."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    tables = [result("fresh", f"bank/{name}") for name in ("a", "b")]
    save_results(lake, tables, of_all=True)
    save_results(lake, tables[:1], of_all=False)
    assert load_results(lake) == tuple(tables)
    save_results(lake, tables[:1], of_all=True)
    save_results(lake, [], of_all=True)
    assert load_results(lake) == tuple(tables[:1])


def test_processes_store_their_results_at_the_same_time(tmp_path: Path) -> None:
    """A conflict loses nobody's results: the later commit adds its own to those of the other."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    results = [result(f"check_{number}", "bank__cdc/cut") for number in range(4)]
    lakes = [Lake(lake.settings, "bank") for _ in results]
    assert load_results(lake) == ()
    with ThreadPoolExecutor() as pool:
        calls = [
            partial(save_results, own, [own_result], of_all=True)
            for own, own_result in zip(lakes, results, strict=True)
        ]
        assert all(future.result() is None for future in [pool.submit(call) for call in calls])
    assert load_results(lake) == tuple(results)


def test_a_lake_without_the_table_has_no_results(tmp_path: Path) -> None:
    """A reader of a lake that no process of this version has written to gets none, and creates nothing."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "bank")
    lake.catalog.drop_table(f"{lake.system_namespace}.{CHECKED}")
    assert load_results(Lake(lake.settings, "bank", is_reader=True)) == ()
