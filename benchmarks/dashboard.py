"""How long the status page takes to draw 100,000 cycles of history, and its metrics.

The lake is written by the platform's own commits: most of the history in bulk, then cycles one by one, of
which the metadata keep the snapshots, and whose files are rewritten as one, as compaction does; the last ones
stay as small files, as many as there are before a compaction is due. Nothing is kept between two drawings.

python -m benchmarks.dashboard
"""

import json
import os
import shutil
import statistics
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import yaml

from benchmarks.measure.harness import Report, arguments, must_equal, timed
from cdc_platform.components.loading import COMPONENTS, load_settings
from cdc_platform.dashboard.change_rates import COUNTED_ROWS
from cdc_platform.dashboard.facts import PipelineFacts, PipelineHistory, WatchedPipeline
from cdc_platform.dashboard.page import PageOptions
from cdc_platform.dashboard.watch import Watch
from cdc_platform.lake.commits.commits import NEXT_ORDINAL, POSITION, STATS
from cdc_platform.lake.state.control import load_lineage, save_lineage
from cdc_platform.lake.state.cuts import NUMBER
from cdc_platform.model.base.schemas import CHANGE_LOG, CUTS, RAW_CHANGE_RECORDS, TIMESTAMP
from cdc_platform.model.base.stored_names import CUT, CYCLE, LOG, RAW
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.model.stream.lineage import ChildAnnouncement, advance
from cdc_platform.model.stream.read_windows import ReadWindow, WindowOutcome, WindowReport
from cdc_platform_tests.support.pipelines import window_row
from cdc_platform_tests.support.watched_lakes import SECOND, WatchedLake

TABLE = "accounts"
BATCH = 2500
"""Cycles of a file, as compaction makes it."""
SMALL_FILES = 24
"""Cycles after which the platform's own tables are compacted."""
HOURS = 24.0


def write_defs(folder: Path, name: str) -> Path:
    """Write the file of a pipeline whose source nobody asks, and return it."""
    source = {"project": "p", "instance": "i", "database": "d", "change_stream": "s"}
    document = {
        "type": next(iter(COMPONENTS)),
        "attributes": {"name": name, "source": source, "lake": {"path": "lake"}},
    }
    folder.mkdir(parents=True)
    path = folder / "defs.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def write_history(lake: WatchedLake, cycles: int, changes: int) -> None:
    """Commit cycles of a second in bulk; each cycle publishes a cut with the same number of changes."""
    for first in range(1, cycles + 1, BATCH):
        numbers = np.arange(first, min(first + BATCH, cycles + 1), dtype=np.int64)
        positions = lake.position_micros + numbers * SECOND
        marks = {CYCLE: str(numbers[-1]), POSITION: str(positions[-1])}
        append_log(lake, numbers, positions, changes, marks)
        append_cuts(lake, numbers, positions, marks)
    lake.cycle = lake.cuts = cycles
    lake.ordinal = cycles * changes
    last_micros = lake.position_micros + cycles * SECOND
    report = window_row(ReadWindow("", lake.position_micros, last_micros))
    marks = {CYCLE: str(cycles), POSITION: str(last_micros)}
    raw = pa.Table.from_pylist([{**report, "cycle": cycles}], RAW_CHANGE_RECORDS)
    lake.pipeline.lake.system_table(RAW).append(raw, snapshot_properties=marks)
    lake.position_micros = last_micros


def append_log(
    lake: WatchedLake, cycles: np.ndarray, positions: np.ndarray, changes: int, marks: dict[str, str]
) -> None:
    """Commit the changes of some cycles to the log."""
    rows = {
        "cycle": np.repeat(cycles, changes),
        "ordinal": np.arange(cycles[0] * changes, (cycles[-1] + 1) * changes, dtype=np.int64),
        "table_name": pa.array([TABLE]).take(pa.array(np.zeros(len(cycles) * changes, np.int64))),
        "commit_timestamp": pa.array(np.repeat(positions, changes), pa.int64()).cast(TIMESTAMP),
    }
    properties = {**marks, NEXT_ORDINAL: "0", STATS: json.dumps({TABLE: [len(cycles) * changes, 0, 0]})}
    lake.pipeline.lake.system_table(LOG).append(filled(rows, CHANGE_LOG), snapshot_properties=properties)


def append_cuts(lake: WatchedLake, cycles: np.ndarray, positions: np.ndarray, marks: dict[str, str]) -> None:
    """Commit the cuts of some cycles, each published half a second after its position."""
    rows = {
        "cut": cycles,
        "position": pa.array(positions, pa.int64()).cast(TIMESTAMP),
        "cycle": cycles,
        "tables": pa.array([[(TABLE, 1)]] * len(cycles), CUTS.field("tables").type),
        "published_at": pa.array(positions + SECOND // 2, pa.int64()).cast(TIMESTAMP),
    }
    properties = {**marks, NUMBER: str(cycles[-1])}
    lake.pipeline.lake.system_table(CUT).append(filled(rows, CUTS), snapshot_properties=properties)


def filled(columns: dict[str, object], schema: pa.Schema) -> pa.Table:
    """Return rows with all columns of a schema; those that are not given are null."""
    count = len(columns["cycle"])  # type: ignore[arg-type]
    return pa.table(
        {field.name: columns.get(field.name, pa.nulls(count, field.type)) for field in schema}, schema
    )


def compact(lake: WatchedLake, after_cycle: int) -> None:
    """Rewrite the files of the cycles after a given one as one file for each table."""
    newer = f"cycle > {after_cycle}"
    for name in (RAW, LOG, CUT):
        table = lake.pipeline.lake.system_table(name)
        table.overwrite(table.scan(newer).to_arrow(), overwrite_filter=newer)


def write_partitions(lake: WatchedLake, partitions: int, start_micros: int) -> None:
    """Store a lineage in which each partition but the last has ended, and its child continues."""
    stored = load_lineage(lake.pipeline.lake)
    assert stored is not None
    step = (lake.position_micros - start_micros) // (partitions + 1)
    ends = [start_micros + step * number for number in range(1, partitions + 1)]
    tokens = ["", *(f"token-{number}" for number in range(1, partitions + 1))]
    starts = [start_micros - 1, *ends]
    windows = [
        WindowReport(token, start, end, WindowOutcome.FINISHED)
        for token, start, end in zip(tokens, starts, ends, strict=False)
    ]
    children = [
        ChildAnnouncement(lake.cycle, end + 1, child, (parent,))
        for parent, child, end in zip(tokens, tokens[1:], ends, strict=False)
    ]
    windows.append(WindowReport(tokens[-1], ends[-1], lake.position_micros, WindowOutcome.COMPLETE))
    save_lineage(lake.pipeline.lake, advance(stored, lake.cycle, windows, children))


def measure(report: Report, name: str, lake: WatchedLake, cycles: int, changes: int) -> None:
    """Report the seconds of the page and of the metrics, each time after a cycle and with nothing kept."""
    defs = Path(report.options.work) / "dashboard" / name / "defs.yaml"
    pages, processor, metrics, options = [], [], [], PageOptions(HOURS)
    for _ in range(report.options.rounds):
        # A watch that has read nothing yet; the lineage is kept by its snapshot, which a cycle replaces.
        lake.run_cycle(clock_micros() - SECOND, {TABLE: changes})
        watched = WatchedPipeline.of(load_settings(defs), late_after_s=3600)
        watch = Watch([watched])
        before = time.process_time()
        pages.append(timed(partial(watch.page, options)))
        processor.append(time.process_time() - before)
        metrics.append(timed(watch.metrics))
    facts = watched.read_facts()
    assert isinstance(facts, PipelineFacts)
    history = watched.read_history(facts, HOURS)
    assert isinstance(history, PipelineHistory)
    must_equal(
        lake.cuts, facts.status.cut.cut if facts.status.cut is not None else None, "number of the newest cut"
    )
    must_equal(changes * cycles <= COUNTED_ROWS, history.rates.is_exact, "whether every cycle is counted")
    page = len(watch.page(options))
    best = {"best": round(min(pages), 3), "at_most": 1.0, "reached": statistics.median(pages) <= 1.0}
    report.note(f"page, {name}", statistics.median(pages), "s (median)", **best, kilobytes=page // 1000)
    report.note(
        f"page, {name}: processor", statistics.median(processor), "s (median)", load=os.getloadavg()[0]
    )
    report.note(f"metrics, {name}", statistics.median(metrics), "s (median)")


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--cycles", type=int, default=100_000, help="cycles of history, one a second")
    parser.add_argument("--single", type=int, default=200, help="how many of them are committed one by one")
    parser.add_argument("--partitions", type=int, default=5000, help="partitions that have ended")
    parser.add_argument("--rounds", type=int, default=5, help="drawings that count")
    options = parser.parse_args()
    report = Report("dashboard", options)
    shutil.rmtree(options.work / "dashboard", ignore_errors=True)
    for name, changes in (("counted", 20), ("estimated", 200)):
        defs = write_defs(options.work / "dashboard" / name, name)
        start_micros = clock_micros() - options.cycles * SECOND
        lake = WatchedLake.begin(defs, start_micros)
        write_history(lake, options.cycles - options.single, changes)
        write_partitions(lake, options.partitions, start_micros)
        for number in range(options.single):
            if number == options.single - SMALL_FILES:
                compact(lake, options.cycles - options.single)
            lake.run_cycle(lake.position_micros + SECOND, {TABLE: changes})
        measure(report, name, lake, options.cycles, changes)


if __name__ == "__main__":
    main()
