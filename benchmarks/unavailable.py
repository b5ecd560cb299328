"""Debezium events of which a fifth lack values, compared with complete events, and with a shortcut.

Each candidate brings a table further by the same changes, from files of messages to rows. The shortcut is
what most people write: the latest event of each key, whose markers are filled from the stored row. It is
timed, and shown to give wrong rows: a value that an earlier event of the batch has set is lost.
"""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from benchmarks.inputs.events import change_message
from benchmarks.measure.harness import Report, arguments, interleaved, must_equal, timed
from benchmarks.measure.tables import open_session
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER, Strategy
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform.spark.launch.spark_settings import SparkSettings

WHOLE: Final = "all values sent, omit"
NAIVE: Final = "latest event, then fill"
NAMES: Final = ("id", "n", "big")
TYPES: Final = {"id": "bigint", "n": "bigint", "big": "text"}
LETTERS: Final = 200
FIRST_LSN: Final = 1_000_000
FIRST_MS: Final = 1_700_000_000_000
MESSAGE: Final = "struct<value:struct<after:struct<id:bigint,n:bigint,big:string>,source:struct<lsn:bigint>>>"

Rows = dict[int, tuple[int, str]]


@dataclass
class Changes:
    """Rows that a snapshot has, updates of them, and what they make of the rows.

    ``share`` of the updates leave the large value alone; every other one sets it.
    """

    rows: int
    events: int
    share: float
    seed: int
    truth: Rows = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the snapshot, and the updates with and without all values."""
        for name in ("snapshot", "whole", "lacking"):
            (folder / name).mkdir(parents=True)
        lines = self.lines()
        with (folder / "snapshot" / "0.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(whole for whole, _ in islice(lines, self.rows))
        with (
            (folder / "whole" / "1.jsonl").open("w", encoding="utf-8") as with_all,
            (folder / "lacking" / "1.jsonl").open("w", encoding="utf-8") as without,
        ):
            for whole, lacking in lines:
                with_all.write(whole)
                without.write(lacking)

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of the snapshot and of the updates, each with and without all values."""
        dice = random.Random(self.seed)  # noqa: S311  a benchmark's input, not a secret
        for key in range(self.rows):
            self.truth[key] = (0, _text(dice))
            line = _line("r", key, *self.truth[key], FIRST_LSN)
            yield line, line
        for number, (key, text) in enumerate(self._updates(dice), start=1):
            kept = self.truth[key][1] if text is None else text
            self.truth[key] = (number, kept)
            lsn = FIRST_LSN + number * 100
            whole = _line("u", key, number, kept, lsn)
            yield whole, _line("u", key, number, DEFAULT_PLACEHOLDER, lsn) if text is None else whole

    def _updates(self, dice: random.Random) -> Iterator[tuple[int, str | None]]:
        for _ in range(self.events):
            text = None if dice.random() < self.share else _text(dice)
            yield dice.randrange(self.rows), text


def _text(dice: random.Random) -> str:
    return f"{dice.getrandbits(64):016x}" * (LETTERS // 16)


def _line(op: str, key: int, n: int, big: str, lsn: int) -> str:
    sent_ms = FIRST_MS + lsn
    return _template(op) % {"key": key, "n": n, "big": big, "lsn": lsn, "before": lsn - 10, "sent": sent_ms}


@cache
def _template(op: str) -> str:
    """Return a line with places for what differs: tens of millions of lines are made of it."""
    lsn, key, n = 987_654_321, 876_543_210, 765_432_109
    after = {"id": key, "n": n, "big": "%(big)s"}
    line = json.dumps(change_message(op, "items", {"id": key}, after, lsn, FIRST_MS + lsn)) + "\n"
    places = {FIRST_MS + lsn: "sent", lsn: "lsn", lsn - 10: "before", key: "key", n: "n"}
    for value, name in places.items():
        line = line.replace(str(value), f"%({name})d")
    return line


@dataclass(frozen=True)
class Bench:
    """The inputs of one run, and the session that reads them."""

    spark: SparkSession
    lake: LakeSettings
    inputs: Path
    scratch: Path
    truth: Rows


def by_platform(bench: Bench, events: str, strategy: Strategy) -> Callable[[], float]:
    """Return the candidate that reads the snapshot in one cycle, and in another one, which counts, events."""
    numbers = iter(range(1, 1_000_000))

    def run() -> float:
        name = f"{events}_{strategy.value}_{next(numbers)}"
        folder = bench.scratch / name
        shutil.copytree(bench.inputs / "snapshot", folder)
        source = DebeziumSettings(FilesInput(str(folder)), columns={"public.items": TYPES}, strategy=strategy)
        pipeline = open_pipeline(PipelineSettings(name, source, bench.lake))
        run_cycle(pipeline, bench.spark)
        (folder / "1.jsonl").hardlink_to(bench.inputs / events / "1.jsonl")
        seconds = timed(lambda: run_cycle(pipeline, bench.spark))
        frame = bench.spark.table(pipeline.lake.spark_table("public.items"))
        must_equal(0, wrong_rows(frame, bench.truth), name)
        shutil.rmtree(folder)
        return seconds

    return run


def by_shortcut(bench: Bench, wrong: list[int]) -> Callable[[], float]:
    """Return the candidate that fills the latest event of each key from the stored rows."""
    stored = _messages(bench.spark, bench.inputs / "snapshot").select(*NAMES).persist()
    stored.count()
    newest = Window.partitionBy("id").orderBy(F.col("lsn").desc())

    def run() -> float:
        target = str(bench.scratch / "shortcut")

        def fill() -> None:
            events = _messages(bench.spark, bench.inputs / "lacking")
            latest = events.withColumn("number", F.row_number().over(newest)).where("number = 1")
            merged = stored.alias("s").join(latest.alias("e"), "id", "left")
            marked = F.col("e.big") == DEFAULT_PLACEHOLDER
            big = F.when(marked, F.col("s.big")).otherwise(F.coalesce("e.big", "s.big")).alias("big")
            merged.select("id", F.coalesce("e.n", "s.n").alias("n"), big).write.mode("overwrite").parquet(
                target
            )

        seconds = timed(fill)
        wrong.append(wrong_rows(bench.spark.read.parquet(target), bench.truth))
        return seconds

    return run


def _messages(spark: SparkSession, folder: Path) -> DataFrame:
    lines = spark.read.text(str(folder))
    return lines.select(F.from_json("value", MESSAGE).alias("m")).select(
        "m.value.after.*", "m.value.source.lsn"
    )


def wrong_rows(frame: DataFrame, truth: Rows) -> int:
    """Return how many rows are not as they should be, or are not there."""
    rows: dict[int, Any] = {row[0]: (row[1], row[2]) for row in frame.select(*NAMES).toLocalIterator()}
    keys = [key for key in rows.keys() | truth.keys() if rows.get(key) != truth.get(key)]
    return len(keys)


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--events", type=int, default=1_000_000, help="updates")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the table")
    parser.add_argument("--share", type=float, default=0.2, help="share of the updates that lack the value")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; the first, cold one is separate")
    options = parser.parse_args()
    report = Report("unavailable", options)
    folder = options.work / "unavailable"
    shutil.rmtree(folder, ignore_errors=True)
    changes = Changes(options.rows, options.events, options.share, options.seed)
    changes.write(folder / "inputs")
    lake = LakeSettings(path=str(folder / "lake"))
    wrong: list[int] = []
    with open_session(SparkSettings(master="local[2]", driver_memory="6g"), lake) as spark:
        bench = Bench(spark, lake, folder / "inputs", folder / "scratch", changes.truth)
        bench.scratch.mkdir()
        candidates = {
            WHOLE: by_platform(bench, "whole", Strategy.OMIT),
            "a share lacking, omit": by_platform(bench, "lacking", Strategy.OMIT),
            "a share lacking, enrich": by_platform(bench, "lacking", Strategy.ENRICH),
            NAIVE: by_shortcut(bench, wrong),
        }
        seconds = interleaved(options.rounds, candidates)
    for name, rounds in seconds.items():
        report.note(f"{name}: cold", rounds[0], "s")
    report.compare({name: r[1:] or r for name, r in seconds.items()}, WHOLE, options.events, "events/s")
    report.note(f"{NAIVE}: wrong rows", wrong[-1], f"of {options.rows}")
    if not wrong[-1]:
        raise SystemExit(
            "The shortcut gave right rows: with so few events a key the comparison shows nothing."
        )


if __name__ == "__main__":
    main()
