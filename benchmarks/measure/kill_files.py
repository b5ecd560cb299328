"""Kills a running sync of Datastream's files at random moments, while files come as they must not.

A stream writes files all the time: of two tables, shuffled, some compressed. Some events come files later,
some come again, and some files are rewritten with more events than they had. The pipeline has caught up
once before the first kill; at the end it catches up, every check runs, every event must be in the log once,
and the tables must have what the newest event of each row says.
"""

import argparse
import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.measure.harness import Report, must_equal
from benchmarks.measure.processes import catch_up, check, kill_sync
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.model.base.stored_names import LOG, RAW
from cdc_platform.model.schema.table_options import ORDERING_KEY
from cdc_platform_tests.support.datastream.files import MadeEvent, StreamFolder, end_state

PIPELINE: Final = "shop"
TABLES: Final = ("users", "orders")
KEYS: Final = 200
FILES_OF_A_CYCLE: Final = 200
CHANGES: Final = ("INSERT", "UPDATE-INSERT", "UPDATE-INSERT", "DELETE")


@dataclass
class FileTraffic:
    """What a stream has written, and what it has kept back."""

    folder: StreamFolder
    chance: random.Random
    events: list[MadeEvent] = field(default_factory=list)
    late: list[MadeEvent] = field(default_factory=list)
    files: dict[str, list[MadeEvent]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def write(self, fresh: int) -> None:
        """Write one file of so many new events, with late and repeated ones, or in place of a former one."""
        table = self.chance.choice(TABLES)
        made = [self._make(table) for _ in range(fresh)]
        kept_back = self._some(made, 0.2)
        due = [event for event in self.late if event.table == table and self.chance.random() < 0.3]
        again = self._some([event for event in self.events if event.table == table][-500:], 0.02)
        self.late = [event for event in [*self.late, *kept_back] if event not in due]
        self._put([*(event for event in made if event not in kept_back), *due, *again])
        self.counts += Counter(late=len(due), repeated=len(again))

    def write_what_is_late(self) -> None:
        """Write everything that was kept back."""
        for table in TABLES:
            self._put([event for event in self.late if event.table == table])
        self.late = []

    def _make(self, table: str) -> MadeEvent:
        number = len(self.events) + 1
        row = {"id": self.chance.randrange(KEYS), "name": f"row {number}"}
        self.events.append(MadeEvent(f"u{number:07}", table, self.chance.choice(CHANGES), number, row))
        return self.events[-1]

    def _some(self, events: list[MadeEvent], share: float) -> list[MadeEvent]:
        return [event for event in events if self.chance.random() < share]

    def _put(self, events: list[MadeEvent]) -> None:
        if not events:
            return
        former = [name for name in [*self.files][-40:] if self.files[name][0].table == events[0].table]
        is_rewrite = bool(former) and self.chance.random() < 0.15
        name = self.chance.choice(former) if is_rewrite else f"{len(self.files):06}.jsonl"
        listed = [*self.files.get(name, []), *events]
        self.chance.shuffle(listed)
        self.folder.write(listed, name, compressed=len(self.files) % 3 == 0)
        self.files[name] = listed
        self.counts["rewritten" if is_rewrite else "files"] += 1


@contextmanager
def written(traffic: FileTraffic, every_s: float, fresh: int) -> Iterator[None]:
    """Write a file every so many seconds while the context lasts, and what is late at its end."""
    ended = threading.Event()

    def write_on() -> None:
        while not ended.wait(every_s):
            traffic.write(fresh)

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()
        traffic.write_what_is_late()


def run_files(options: argparse.Namespace, report: Report) -> None:
    """Kill so often while files are written, and report that all was right."""
    chance = random.Random(f"{options.seed}/files")  # noqa: S311  a benchmark's input, not a secret
    folder: Path = options.work / "kill" / "files"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    definition, lake = _write_definition(folder), Lake(LakeSettings(str(folder / "lake")), PIPELINE)
    traffic, killed_at = FileTraffic(StreamFolder(folder / "files"), chance), Counter[str]()
    killing = random.Random(f"{options.seed}/moments")  # noqa: S311  a benchmark's input, not a secret
    fresh = max(1, round(options.rate))
    traffic.write(fresh)
    catch_up(definition)
    with written(traffic, 1.0, fresh):
        for number in range(1, options.kills + 1):
            kill_sync(definition, options.within_s, killing)
            killed_at[_step(lake)] += 1
            print(f"  kill {number}/{options.kills} {_step(lake)}", flush=True)
    catch_up(definition)
    check(definition)
    _check_lake(lake, traffic)
    kills = {step.replace(" ", "_"): times for step, times in killed_at.items()}
    report.note("files: kills survived, every check passed", options.kills, "kills", **kills)
    report.note("files: changes in the log, each once", len(traffic.events), "changes", **traffic.counts)


def _write_definition(folder: Path) -> Path:
    source = {"path": str(folder / "files"), "table_name": "{table}", "max_files": FILES_OF_A_CYCLE}
    attributes: Mapping[str, Any] = {
        "name": PIPELINE,
        "source": source,
        "lake": {"path": str(folder / "lake")},
        "spark": {"driver_memory": "2g"},
        "idle_interval_s": 0.2,
        "table_options": {"users": {"history": True}},
    }
    path = folder / f"{PIPELINE}.yaml"
    definition = {"type": "cdc_platform.components.datastream.DatastreamPipeline", "attributes": attributes}
    path.write_text(yaml.safe_dump(definition, sort_keys=False), encoding="utf-8")
    return path


def _step(lake: Lake) -> str:
    """Return what the pipeline was doing, as far as the lake shows."""
    cut = newest_cut(lake)
    if cut is None:
        return "before the first cut"
    return (
        "with a cycle half done" if read_mark(lake.system_table(RAW)).cycle > cut.cycle else "between commits"
    )


def _check_lake(lake: Lake, traffic: FileTraffic) -> None:
    """Make sure that every event is in the log once, and that the tables are what the source has."""
    log = lake.system_table(LOG).scan(selected_fields=("record_id",)).to_arrow()["record_id"].to_pylist()
    times = Counter({event.record_id: -1 for event in traffic.events})
    times.update(log)
    must_equal(
        {}, {event: more for event, more in times.items() if more}, "events that are not in the log once"
    )
    expected = end_state(traffic.events)
    for name in TABLES:
        table = lake.table(name)
        rows = table.scan().to_arrow().drop_columns([ORDERING_KEY]).to_pylist() if table is not None else []
        of_table = [row for (of, _), row in sorted(expected.items()) if of == name]
        must_equal(of_table, sorted(rows, key=lambda row: int(row["id"])), f"rows of `{name}`")
