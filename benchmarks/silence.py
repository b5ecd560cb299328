"""How long commands print nothing to a pipe, and how soon the demo's first cut is there.

They are the demo, `sync` (an initial copy, changes, a replay), `check`, and a rebuild by Dagster.

The goals: nothing is silent for more than 5 s, and the first cut comes within 20 s of Spark's start.

python -m benchmarks.silence
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import yaml

from benchmarks.measure.harness import Report, arguments, must_equal
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.simulator_settings import SimulatorSettings

SOURCE: Final = ("project", "instance", "database", "change_stream", "emulator_host")
BANK: Final = SimulatorSettings(seed=11, rate=50, accounts=1000, partitions=4, history_s=600)
PLATFORM: Final = "cdc_platform.cli"
FILES: Final = Path(__file__).parents[1] / "examples" / "datastream"
REBUILD: Final = {"ops": {"bank__accounts": {"config": {"rebuild": True}}}}
FIRST_CUT: Final = re.compile(r"The first cut is published, ([0-9.]+) s after Spark's start")


@dataclass(frozen=True)
class Line:
    """A line of a command, and the seconds after the command's start at which it came."""

    at_s: float
    text: str


def run(command: Sequence[object], program: str = PLATFORM, **environment: str) -> list[Line]:
    """Return the lines of a command that ends by itself, between its start and its end."""
    begun_s = time.monotonic()
    lines = [Line(0.0, "start")]
    with subprocess.Popen(
        [sys.executable, "-m", program, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | environment,
    ) as process:
        assert process.stdout is not None
        lines += [Line(time.monotonic() - begun_s, text.rstrip()) for text in process.stdout]
    lines.append(Line(time.monotonic() - begun_s, "end"))
    output = "\n".join(line.text for line in lines)
    must_equal(0, process.returncode, f"{command[0]}: {output}")
    return lines


def note_silence(report: Report, name: str, lines: Sequence[Line]) -> None:
    """Report the longest silence of a command, and what was said before and after it."""
    before, after = max(pairwise(lines), key=lambda pair: pair[1].at_s - pair[0].at_s)
    silence_s = after.at_s - before.at_s
    report.note(f"{name}: longest silence", silence_s, "s", after=repr(before.text), before=repr(after.text))


def first_cut_s(lines: Sequence[Line]) -> float:
    """Return the seconds from the start of Spark to the first cut, as the demo says them."""
    first_cuts = [found[1] for line in lines if (found := FIRST_CUT.search(line.text))]
    must_equal(1, len(first_cuts), "first cuts before the demo's end: try more --seconds")
    return float(first_cuts[0])


def write_defs(folder: Path, name: str, source: dict[str, str]) -> Path:
    """Write the file of a pipeline of the simulated bank, and return it."""
    attributes = {"name": name, "source": source, "lake": {"path": "lake"}}
    path = folder / f"{name}.yaml"
    document = {"type": "cdc_platform.components.spanner.SpannerPipeline", "attributes": attributes}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def main() -> None:
    """Measure and report."""
    parser = arguments(str(__doc__))
    parser.add_argument("--seconds", type=int, default=90, help="seconds for which the demo runs")
    options = parser.parse_args()
    report, folder = Report("silence", options), options.work / "silence"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    demo = run(["demo", "--home", folder / "demo", "--seconds", str(options.seconds)])
    (folder / "demo.log").write_text("".join(f"{line.at_s:7.2f} {line.text}\n" for line in demo))
    note_silence(report, "demo", demo)
    report.note("demo: first cut after the start of Spark", first_cut_s(demo), "s")
    measure_bank(report, folder)
    measure_replay(report, folder)


def measure_bank(report: Report, folder: Path) -> None:
    """Report the silences of commands on a bank that has a history."""
    with Simulator(BANK) as bank:
        source = {key: bank.names()[key] for key in SOURCE}
        copied = write_defs(folder, "copied", source)
        note_silence(report, "initial copy", run(["sync", copied, "--until-caught-up"]))
        defs = write_defs(folder, "bank", source | {"start_timestamp": bank.names()["start_timestamp"]})
        for command in (["sync", defs, "--cycles", "3"], ["check", defs]):
            note_silence(report, str(command[0]), run(command))
        rebuild = ["asset", "materialize", "--select", "bank/accounts", "-m", "cdc_platform.definitions"]
        options = ["--config-json", json.dumps(REBUILD)]
        lines = run([*rebuild, *options], "dagster", CDC_PLATFORM_DEFS=str(defs))
        note_silence(report, "rebuild", lines)


def measure_replay(report: Report, folder: Path) -> None:
    """Report the silences of a replay of the example's quarantined record, and of the cycle that makes it."""
    document = yaml.safe_load((FILES / "defs.yaml").read_text(encoding="utf-8"))
    document["attributes"]["source"]["path"] = str(FILES / "files")
    document["attributes"]["lake"]["path"] = "files_lake"
    defs = folder / "files.yaml"
    defs.write_text(yaml.safe_dump(document), encoding="utf-8")
    run(["sync", defs, "--until-caught-up"])
    for command in (["quarantine", "replay", defs], ["sync", defs, "--until-caught-up"]):
        note_silence(report, f"replay: {command[0]}", run(command))


if __name__ == "__main__":
    main()
