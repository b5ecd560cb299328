"""Moving `main` of tables to what a cut names, while other processes publish."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow as pa

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.branches import move_branch
from cdc_platform.lake.commits.commits import BRANCH, CYCLE, MAIN, head
from cdc_platform.lake.state.cuts import Cut, append_cut
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.publishing import publish

ROWS = pa.table({"id": pa.array([1], pa.int64())})


def test_a_table_that_is_rebuilt_meanwhile_stays_so(tmp_path: Path) -> None:
    """A process that is delayed before it moves `main` does not undo what another has published since.

    What is rebuilt from an older cut has the cycle of what it replaces, and is not built on it.
    """
    lake = Lake(LakeSettings(str(tmp_path)), "p")
    table = lake.catalog.create_table("p.t", ROWS.schema)
    table.append(ROWS, snapshot_properties={CYCLE: "1"})
    base, cuts = head(table), list[Cut]()
    assert base is not None
    for number in (1, 2):
        move_branch(table.refresh(), BRANCH, base.snapshot_id)
        table.refresh().append(ROWS, snapshot_properties={CYCLE: "2"}, branch=BRANCH)
        version = head(table.refresh(), BRANCH)
        assert version is not None
        cuts.append(Cut(number, 5, 2, {"t": version.snapshot_id}, 6))
        append_cut(lake, cuts[-1])
    delayed, rebuilt = (cut.tables["t"] for cut in cuts)
    pipeline = cast("Pipeline", SimpleNamespace(lake=lake, name="p"))
    for former in (rebuilt, delayed):
        move_branch(table.refresh(), MAIN, former)
        for cut in reversed(cuts):
            publish._move_mains(pipeline, cut, ["t"])  # noqa: SLF001  the other process is between two steps
            newest = head(table.refresh())
            assert newest is not None
            assert rebuilt == newest.snapshot_id
