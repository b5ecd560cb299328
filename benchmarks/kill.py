"""Kills the whole process group of a running sync at random moments, then runs every check.

The source is a simulator that never stops: transfers are committed, and partitions live for
seconds. `copy` begins with tables that hold rows already, and with a new pipeline as soon as a copy is
complete; under `schema` columns are added, dropped and retyped, and tables added, every two seconds; `all`
is both; under `moves` keys move every second between partitions of two placements. Before a pipeline is
left, and after the last kill, it catches up, every check runs, no record may be in the log twice, and no
money may be lost.
"""

import argparse
import random
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.measure.harness import Report, arguments, must_equal
from benchmarks.measure.kill_files import run_files
from benchmarks.measure.processes import catch_up, check, kill_sync
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.copies import load_copy_progress, load_plans
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.lake.state.schema_history import list_schema_events
from cdc_platform.model.base.names import lake_table_name
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.simulator_settings import PartitionMode, SimulatorSettings
from cdc_platform_tests.support.workloads.traffic import changing_columns

ALL: Final = "all"
CHANGES: Final = changing_columns(every_s=2.0, laps=2000)
"""Of the schema, for some hours."""
SCENARIOS: Final[Mapping[str, Mapping[str, Any]]] = {
    "cycles": {},
    "copy": {"preloaded_transfers": 60_000},
    "schema": {"schema_changes": CHANGES},
    "moves": {
        "partition_life_s": 5.0,
        "partition_mode": PartitionMode.MUTABLE_KEY_RANGE,
        "placements": ("asia",),
    },
    ALL: {"preloaded_transfers": 60_000, "schema_changes": CHANGES},
}
"""What is added to the simulator's settings."""
ACCOUNTS: Final = 1000
EACH_OPENED_WITH: Final = 1000
CHUNK_ROWS: Final = 500
"""Of a table that the source does not cut by itself; the simulator cuts one of some size into ten."""


@dataclass
class Target:
    """The pipelines that are killed, one after the other, each with a separate part of the lake."""

    folder: Path
    simulator: Simulator
    copies: bool
    number: int = 1
    checked: int = 0
    changes: int = 0
    schema_changes: int = 0
    killed_at: Counter[str] = field(default_factory=Counter)

    @property
    def lake(self) -> Lake:
        """The lake of the current pipeline."""
        return Lake(LakeSettings(str(self.folder / "lake")), f"bank_{self.number}")

    def write_definition(self) -> Path:
        """Write the pipeline's YAML for the command line and return its path."""
        source = self.simulator.names()
        if self.copies:
            del source["start_timestamp"]
        attributes = {
            "name": self.lake.pipeline,
            "source": source,
            "lake": {"path": str(self.folder / "lake")},
            "spark": {"driver_memory": "2g"},
            "copy_chunk_rows": CHUNK_ROWS,
            "copy_s": 1,
            "idle_interval_s": 0.2,
        }
        path = self.folder / f"{self.lake.pipeline}.yaml"
        definition = {"type": "cdc_platform.components.spanner.SpannerPipeline", "attributes": attributes}
        path.write_text(yaml.safe_dump(definition, sort_keys=False), encoding="utf-8")
        return path

    def step(self) -> str:
        """Return what the pipeline was doing, as far as the lake shows."""
        lake = self.lake
        plans = load_plans(lake)
        if self.copies:
            if not plans:
                return "before the copy"
            if not all(
                load_copy_progress(lake.table(name), plan).is_complete for name, plan in plans.items()
            ):
                return "in the copy"
        return "before the first cut" if newest_cut(lake) is None else "in cycles"


def kill_at_random(target: Target, kills: int, within_s: float, chance: random.Random) -> None:
    """Start the pipeline and kill its whole process group, again and again."""
    for number in range(1, kills + 1):
        kill_sync(target.write_definition(), within_s, chance)
        step = target.step()
        target.killed_at[step] += 1
        print(f"  kill {number}/{kills} {step}: {position(target.lake)}", flush=True)
        if target.copies and step == "in cycles" and number < kills:
            check_lake(target)
            target.number += 1


def position(lake: Lake) -> str:
    """Return where the lake stands after a kill, as far as readers see."""
    cut = newest_cut(lake)
    return f"cut {cut.cut}, cycle {cut.cycle}" if cut is not None else "no cut yet"


def check_lake(target: Target) -> None:
    """Make sure that nothing is lost, twice or wrong."""
    definition = target.write_definition()
    catch_up(definition)
    check(definition)
    lake, fields = target.lake, ("table_name", "record_id", "mod_ordinal")
    log = lake.system_table(LOG).scan(selected_fields=fields).to_arrow()
    must_equal(len(log), len(log.group_by(list(fields)).aggregate([])), "distinct changes of the log")
    table = lake.catalog.load_table(f"{lake.pipeline}.{lake_table_name('accounts')}")
    balances = table.scan(selected_fields=("balance",)).to_arrow()["balance"].to_pylist()
    must_equal(ACCOUNTS * EACH_OPENED_WITH, sum(balances), "sum of balances")
    target.checked += 1
    target.changes += len(log)
    target.schema_changes += sum(event.since_micros is not None for event in list_schema_events(lake))


def run_scenario(options: argparse.Namespace, name: str, report: Report) -> None:
    """Kill so often in one scenario, and report that all was right."""
    chance = random.Random(f"{options.seed}/{name}")  # noqa: S311  a benchmark's input, not a secret
    folder = options.work / "kill" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    simulated = SimulatorSettings(
        seed=options.seed, rate=options.rate, accounts=ACCOUNTS, partitions=6, partition_life_s=15.0
    )
    with Simulator(replace(simulated, **SCENARIOS[name])) as simulator:
        target = Target(folder, simulator, copies="preloaded_transfers" in SCENARIOS[name])
        kill_at_random(target, options.kills, options.within_s, chance)
        check_lake(target)
        kills = {step.replace(" ", "_"): times for step, times in target.killed_at.items()}
        report.note(f"{name}: kills survived, every check passed", options.kills, "kills", **kills)
        report.note(f"{name}: pipelines checked", target.checked, "pipelines")
        report.note(f"{name}: changes in the log, each once", target.changes, "changes")
        report.note(f"{name}: changes of the schema followed", target.schema_changes, "changes")


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--source", choices=["spanner", "datastream"], default="spanner", help="of what")
    parser.add_argument(
        "--during", choices=list(SCENARIOS), default=ALL, help="what is killed, of Spanner's pipelines"
    )
    parser.add_argument("--kills", type=int, default=100, help="how often the process group is killed")
    parser.add_argument("--within-s", type=float, default=25, help="longest life of a run")
    parser.add_argument("--rate", type=float, default=50, help="transactions or events a second")
    options = parser.parse_args()
    report = Report("kill", options)
    if options.source == "datastream":
        run_files(options, report)
    else:
        run_scenario(options, options.during, report)


if __name__ == "__main__":
    main()
