"""The last result of each check, one row each: commands and Dagster store it, the status page reads it."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

from cdc_platform.lake.catalog.lake import CHECKED, TRIES, Lake
from cdc_platform.lake.commits.commits import Version, head
from cdc_platform.model.base.schemas import CHECK_RESULTS
from cdc_platform.model.base.stored_texts import understanding
from cdc_platform.model.base.timestamps import from_datetime, to_datetime


@dataclass(frozen=True)
class LastResult:
    """The last result of one check.

    Args:
        name: name of the check.
        asset: key of the asset of the check, such as `bank/accounts`.
        passed: whether it passed.
        is_warning: whether a failure only warns.
        at_s: when the check ran, in seconds since the epoch.
        summary: one sentence with the findings.
    """

    name: str
    asset: str
    passed: bool
    is_warning: bool
    at_s: float
    summary: str

    @property
    def has_failed(self) -> bool:
        """Whether the check failed and is more than a warning."""
        return not self.passed and not self.is_warning


def save_results(lake: Lake, results: Collection[LastResult], *, of_all: bool) -> None:
    """Store results in place of former ones.

    Args:
        lake: the pipeline's part of the lake.
        results: the results.
        of_all: whether these are all results of their checks: former results of other assets, whose tables no
            longer exist, are removed.
    """
    places, names = {(result.name, result.asset) for result in results}, {result.name for result in results}
    for _ in range(TRIES if results else 0):
        table = lake.system_table(CHECKED)
        is_first, version = head(table) is None, Version.newest(table)
        kept = [
            result
            for result in (_read(version) if version is not None else ())
            if (result.name not in names if of_all else (result.name, result.asset) not in places)
        ]
        rows = pa.Table.from_pylist([*map(_as_row, (*kept, *results))], CHECK_RESULTS)
        try:
            (table.append if is_first else table.overwrite)(rows)
        except CommitFailedException:
            # Another process has stored results. If one does so at each try, its results are newer.
            continue
        return


def load_results(lake: Lake) -> tuple[LastResult, ...]:
    """Return the last result of each check that has one, by name and asset; needs no Spark."""
    try:
        version = Version.newest(lake.system_table(CHECKED))
    except NoSuchTableError:
        # No process of this version has written to the lake.
        return ()
    return _read(version) if version is not None else ()


# The status page asks every few seconds; the results of a few pipelines are cached.
@lru_cache(maxsize=4)
@understanding(CHECKED)
def _read(version: Version) -> tuple[LastResult, ...]:
    rows = version.table.scan(snapshot_id=version.snapshot_id).to_arrow().to_pylist()
    return tuple(sorted(map(_from_row, rows), key=lambda result: (result.name, result.asset)))


def _as_row(result: LastResult) -> dict[str, Any]:
    return {**vars(result), "ran_at": to_datetime(round(result.at_s * 1e6))}


def _from_row(row: dict[str, Any]) -> LastResult:
    named = {name: row[name] for name in ("name", "asset", "passed", "is_warning", "summary")}
    return LastResult(**named, at_s=from_datetime(row["ran_at"]) / 1e6)
