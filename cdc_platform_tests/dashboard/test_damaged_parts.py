"""A damaged part of a lake hides no other: status, page and metrics show the rest, and name the part."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry
from pyiceberg.table import Table

from cdc_platform.components.loading import load_settings
from cdc_platform.dashboard.facts import PipelineFacts, WatchedPipeline
from cdc_platform.dashboard.health import State
from cdc_platform.dashboard.metrics import PipelineCollector
from cdc_platform.dashboard.page import PageOptions, PipelineView, write_page
from cdc_platform.lake.catalog.lake import Lake, own_tables
from cdc_platform.lake.state.last_results import LastResult, save_results
from cdc_platform.model.base.stored_names import CHECK_RESULTS, COPIES, CUT, LINEAGE, QUARANTINE, SCHEMA
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform_tests.commands.invoking import run
from cdc_platform_tests.support.watched_lakes import SECOND, WatchedLake
from cdc_platform_tests.yaml_files import write_defs

START: Final = 1_800_000_000_000_000
MARK: Final = {"cdc.cycle": "9", "cdc.cut": "9"}
FOREIGN: Final = {
    # a row that the platform cannot have written, and the parts of a status that need its table
    CHECK_RESULTS: ({"name": "fresh", "asset": "bank/t"}, {"checks"}),
    CUT: ({"cut": 9}, {"cut"}),
    LINEAGE: ({"partition_token": "a", "state": "ODD"}, {"partitions", "stuck partitions"}),
    COPIES: ({"table_name": "t", "number": 1}, {"copies"}),
    SCHEMA: ({"cycle": 1, "number": 1, "change": "odd"}, {"copies", "notes"}),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a pipeline with two cuts and a check that passed."""
    folder = tmp_path_factory.mktemp("sound")
    lake = WatchedLake.begin(write_defs(folder), START)
    for number in (1, 2):
        lake.run_cycle(START + number * SECOND, {"accounts": 2})
    save_results(lake.pipeline.lake, [LastResult("keys_unique", "bank/accounts", True, False, 1.0, "fine")])
    return folder


@pytest.fixture
def defs(sound: Path) -> Path:
    """The file of that pipeline, whose lake is as it was: files of a table never change, only the catalog."""
    catalog = sound / "lake" / "catalog.db"
    kept = sound / "sound.db"
    if not kept.exists():
        shutil.copy(catalog, kept)
    shutil.copy(kept, catalog)
    return next(sound.rglob("defs.yaml"))


def facts_of(defs: Path) -> PipelineFacts:
    """Return what can be read of a pipeline, which is something."""
    facts = WatchedPipeline.of(load_settings(defs), late_after_s=60).read_facts()
    assert isinstance(facts, PipelineFacts), facts.problem
    return facts


def shown(defs: Path) -> tuple[PipelineFacts, str, str]:
    """Return the facts of a pipeline, its page and its metrics."""
    facts = facts_of(defs)
    history = WatchedPipeline.of(load_settings(defs), late_after_s=60).read_history(facts, hours=1)
    page = write_page([PipelineView("bank", facts, history)], facts.now_micros, PageOptions(hours=1))
    registry = CollectorRegistry()
    registry.register(PipelineCollector({"bank": facts}))
    return facts, page, generate_latest(registry).decode()


def check_shown(defs: Path, parts: set[str]) -> None:
    """Check that status, page and metrics name these parts, and show the others."""
    facts, page, metrics = shown(defs)
    assert parts == facts.status.unreadable.keys()
    assert facts.health.word is State.UNKNOWN
    assert 'cdc_platform_up{pipeline="bank"} 1.0' in metrics
    assert 'cdc_platform_cycles_total{pipeline="bank"} 2.0' in metrics
    code, output, _ = run("status", defs)
    rows = output.splitlines()
    assert code == 1
    assert [row for row in rows if row.startswith("accounts")]
    for part in parts:
        assert f'cdc_platform_unreadable{{part="{part}",pipeline="bank"}} 1.0' in metrics
        assert f"{part} cannot be read: " in page
        assert any(row.split(maxsplit=1)[:1] == ["unreadable"] and part in row for row in rows), part
    assert ("2 at " in output, "cdc_platform_cuts_total{" in metrics) == (("cut" not in parts,) * 2)
    assert ("1 passed" in output, "cdc_platform_check_passed{" in metrics) == (("checks" not in parts,) * 2)
    assert ("1 live" in output, "cdc_platform_partitions{" in metrics) == (("partitions" not in parts,) * 2)
    (status,) = json.loads(run("status", defs, "--json")[1])
    assert parts == status["unreadable"].keys()
    assert status["cycle"] == 2


@pytest.mark.parametrize("table", FOREIGN)
def test_foreign_rows_hide_nothing_else(defs: Path, table: str) -> None:
    """A row that cannot be read is reported as what it belongs to."""
    row, parts = FOREIGN[table]
    lake = open_pipeline(load_settings(defs)).lake
    schema = own_tables(delivers_events=False)[table]
    lake.system_table(table).append(pa.Table.from_pylist([row], schema), snapshot_properties=MARK)
    check_shown(defs, parts)


def lose_results(lake: Lake) -> None:
    """Move the rows of the check results away, as a broken disk would."""
    for task in lake.system_table(CHECK_RESULTS).scan().plan_files():
        Path(task.file.file_path.removeprefix("file://")).rename(Path(lake.settings.path) / "lost.parquet")


def lose_metadata(lake: Lake, table: Table | None = None) -> None:
    """Move the metadata of a table away, by default of one of the user's."""
    stored = table or lake.table("transfers")
    assert stored is not None
    location = Path(stored.metadata_location.removeprefix("file://"))
    location.rename(Path(lake.settings.path) / "lost.json")


def lose_quarantine(lake: Lake) -> None:
    """Move the metadata of the quarantine away."""
    lose_metadata(lake, lake.system_table(QUARANTINE))


@pytest.mark.parametrize(
    ("damage", "parts"),
    [
        (lose_quarantine, {"quarantine", "replay"}),
        (lose_results, {"checks"}),
        (lose_metadata, {"table transfers"}),
    ],
)
def test_lost_files_hide_nothing_else(
    tmp_path: Path, damage: Callable[[Lake], None], parts: set[str]
) -> None:
    """So is a table that is gone, or that has lost a file."""
    defs = write_defs(tmp_path)
    lake = WatchedLake.begin(defs, START)
    for number in (1, 2):
        lake.run_cycle(START + number * SECOND, {"accounts": 2, "transfers": 1})
    save_results(lake.pipeline.lake, [LastResult("keys_unique", "bank/accounts", True, False, 1.0, "fine")])
    damage(lake.pipeline.lake)
    check_shown(defs, parts)
