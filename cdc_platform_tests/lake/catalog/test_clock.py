"""A clock that goes back: no commit is made that Iceberg's Java side could not read."""

import time
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_platform.errors import ClockBehind
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.schemas import CUTS
from cdc_platform.model.base.stored_names import CUT, CYCLE

HOUR_S = 3600


def test_commits_wait_for_a_clock_that_was_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the moment of the newest commit; once it has come, commits are made again."""
    lake, now_s = Lake(LakeSettings(str(tmp_path)), "p"), time.time()
    row = pa.Table.from_pylist([{"cut": 1}], CUTS)
    for ahead_s in (HOUR_S, HOUR_S - 30):
        monkeypatch.setattr(time, "time", lambda at_s=now_s + ahead_s: at_s)
        lake.system_table(CUT).append(row, snapshot_properties={CYCLE: "1"})
    before = lake.system_table(CUT).metadata
    monkeypatch.setattr(time, "time", lambda: now_s)
    with pytest.raises(ClockBehind, match=r"clock is behind.*That commit is of \d{4}-.*/cuts") as caught:
        lake.system_table(CUT).append(row, snapshot_properties={CYCLE: "1"})
    assert caught.value.retryable
    assert before == lake.system_table(CUT).metadata
    monkeypatch.setattr(time, "time", lambda: now_s + HOUR_S + 1)
    lake.system_table(CUT).append(row, snapshot_properties={CYCLE: "1"})
