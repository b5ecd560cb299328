"""The last result of each check, one row each: commands and Dagster store it, the status page reads it."""

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table

from cdc_platform.errors import CdcError, CommitConflict, LakeDamaged
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.lake.catalog.damage import RESULTS_REMEDY
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.retries import commit_again
from cdc_platform.lake.commits.commits import Version
from cdc_platform.lake.commits.snapshots import forget_snapshots, replace_rows
from cdc_platform.model.base.quantities import as_age
from cdc_platform.model.base.schemas import CHECK_RESULT_ROWS
from cdc_platform.model.base.stored_names import CHECK_RESULTS
from cdc_platform.model.base.stored_texts import understanding
from cdc_platform.model.base.timestamps import from_datetime, to_datetime

LOGGER: Final = logging.getLogger(__name__)


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
        is_partial: whether it examined only what was new since an earlier one. Such results are stored next
            to those of whole examinations: what these have found is not repaired because new data is sound.
    """

    name: str
    asset: str
    passed: bool
    is_warning: bool
    at_s: float
    summary: str
    is_partial: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether the check failed and is more than a warning."""
        return not self.passed and not self.is_warning

    @property
    def place(self) -> tuple[str, str]:
        """The check and its asset."""
        return self.name, self.asset

    def describe(self, now_s: float) -> str:
        """Return the check, how long ago it ran, and its findings, which were so at that time."""
        return f"{self.name} on {self.asset}, {as_age(now_s - self.at_s)}: {self.summary}"


def save_results(
    lake: Lake,
    results: Collection[LastResult],
    *,
    stays: Callable[[LastResult], bool] = lambda _: True,
    unchanged_after_s: float = 0.0,
) -> None:
    """Store results in place of former ones; if the lake does not accept them, log that.

    A check must not fail because of it, nor may a failure to store a result replace the result itself.

    Args:
        lake: the pipeline's part of the lake.
        results: the results.
        stays: returns whether a former result that none of these replaces still counts; others go.
        unchanged_after_s: how long results that differ from former ones only in time and text need not be
            stored: each commit costs as much as publishing a cut.
    """
    try:
        with reaching(lake.settings):
            _replace(lake, results, stays, unchanged_after_s)
    except CdcError as error:
        LOGGER.warning("The results of checks are not in the lake: %s: %s", type(error).__name__, error)


def _replace(
    lake: Lake,
    results: Collection[LastResult],
    stays: Callable[[LastResult], bool],
    unchanged_after_s: float,
) -> None:
    # A result replaces a former one of its check if it has examined as much.
    places = {(*new.place, is_partial) for new in results for is_partial in {new.is_partial, True}}

    def replace() -> None:
        table = lake.system_table(CHECK_RESULTS)
        former = _read_or_forget(table)
        rest = [old for old in former if stays(old) and (*old.place, old.is_partial) not in places]
        is_same = len(rest) == len(former) and not results
        if not (is_same or _is_recent(former, (*rest, *results), unchanged_after_s)):
            replace_rows(table, pa.Table.from_pylist([*map(_as_row, (*rest, *results))], CHECK_RESULT_ROWS))

    # A conflict at each try means that another process stores newer results.
    with suppress(CommitConflict):
        commit_again(replace, CommitConflict.of(CHECK_RESULTS))


def _read_or_forget(table: Table) -> tuple[LastResult, ...]:
    """Return the stored results; if they are damaged, remove them, so the next try has none.

    Raises:
        CommitFailedException: they are removed, or another process has committed first.
    """
    try:
        return _read_all(table)
    except LakeDamaged as damage:
        # If another process has replaced them, nothing is lost, and their files may be gone.
        forget_snapshots(table)
        LOGGER.warning("%s", damage.but(RESULTS_REMEDY))
        raise CommitFailedException from damage


def _is_recent(
    former: Collection[LastResult], results: Collection[LastResult], unchanged_after_s: float
) -> bool:
    """Return whether results repeat the outcomes of former ones within ``unchanged_after_s`` seconds."""
    former_s, new_s = (
        {replace(result, at_s=0.0, summary=""): result.at_s for result in some} for some in (former, results)
    )
    is_same = former_s.keys() == new_s.keys()
    # A clock that was ahead is set back.
    return is_same and all(abs(new_s[key] - at_s) < unchanged_after_s for key, at_s in former_s.items())


def load_results(lake: Lake) -> tuple[LastResult, ...]:
    """Return the last result of each check that has one, by name and asset; needs no Spark.

    Of a whole and a later partial examination, it is that of the worse result, else the failure of the whole
    one, else that of the later one.

    Raises:
        LakeDamaged: the results cannot be read; the next check that stores one replaces them.
    """
    try:
        results = sorted(_read_all(lake.system_table(CHECK_RESULTS)), key=_weight)
    except NoSuchTableError:
        # No process of this version has written to the lake.
        return ()
    except LakeDamaged as damage:
        raise damage.but(RESULTS_REMEDY) from damage
    newest = {result.place: result for result in results}
    return tuple(newest[place] for place in sorted(newest))


def _weight(result: LastResult) -> tuple[bool, bool, bool, float]:
    is_open = not result.passed
    return result.has_failed, is_open, is_open and not result.is_partial, result.at_s


def _read_all(table: Table) -> tuple[LastResult, ...]:
    version = Version.newest(table)
    return _read(version) if version is not None else ()


# The status page asks every few seconds; the results of a few pipelines are cached.
@lru_cache(maxsize=4)
@understanding(CHECK_RESULTS)
def _read(version: Version) -> tuple[LastResult, ...]:
    rows = version.table.scan(snapshot_id=version.snapshot_id).to_arrow().to_pylist()
    return tuple(map(_from_row, rows))


def _as_row(result: LastResult) -> dict[str, Any]:
    return {**vars(result), "ran_at": to_datetime(round(result.at_s * 1e6))}


def _from_row(row: dict[str, Any]) -> LastResult:
    # Rows of earlier versions do not say how much was examined: only a whole examination replaces them.
    values = {name: row[name] for name in ("name", "asset", "passed", "is_warning", "summary")}
    at_s, is_partial = from_datetime(row["ran_at"]) / 1e6, bool(row.get("is_partial"))
    return LastResult(**values, at_s=at_s, is_partial=is_partial)
