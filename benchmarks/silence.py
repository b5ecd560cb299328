"""How long the demo, `sync` and `check` print nothing to a pipe, and how soon the demo's first cut is there.

The goals: nothing is silent for more than 5 s, and the first cut comes within 20 s of Spark's start.

python -m benchmarks.silence
"""

import json
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

from benchmarks.measure.harness import Report, arguments, must_equal
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.simulator_settings import SimulatorSettings

BANK: Final = SimulatorSettings(seed=11, rate=50, accounts=1000, partitions=4, history_s=600)
FIRST_CUT: Final = re.compile(r"The first cut is published, ([0-9.]+) s after Spark's start")


@dataclass(frozen=True)
class Line:
    """A line of a command, and the seconds after the command's start at which it came."""

    at_s: float
    text: str


def run(arguments_: Sequence[str | Path]) -> list[Line]:
    """Return the lines of a command of the platform that ends by itself, between its start and its end."""
    begun_s = time.monotonic()
    lines = [Line(0.0, "start")]
    command = [sys.executable, "-m", "cdc_platform.cli", *map(str, arguments_)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        lines += [Line(time.monotonic() - begun_s, text.rstrip()) for text in process.stdout]
    lines.append(Line(time.monotonic() - begun_s, "end"))
    output = "\n".join(line.text for line in lines)
    must_equal(0, process.returncode, f"{arguments_[0]}: {output}")
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


def write_defs(folder: Path, names: dict[str, object]) -> Path:
    """Write the file of a pipeline of the simulated bank, and return it."""
    attributes = {"name": "bank", "source": names, "lake": {"path": "lake"}}
    path = folder / "defs.yaml"
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
    with Simulator(BANK) as bank:
        names = {key: bank.names()[key] for key in ("project", "instance", "database", "change_stream")}
        defs = write_defs(
            folder, {**names, **{key: bank.names()[key] for key in ("emulator_host", "start_timestamp")}}
        )
        for command in (["sync", str(defs), "--cycles", "3"], ["check", str(defs)]):
            note_silence(report, command[0], run(command))


if __name__ == "__main__":
    main()
