"""`cdc-platform status` as people and scripts read it."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from cdc_platform.commands.reading.status import describe_statuses
from cdc_platform.components.loading import COMPONENTS, load_settings
from cdc_platform.errors import CommitConflict
from cdc_platform.lake.state.control import save_lineage
from cdc_platform.lake.state.last_results import LastResult
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.stream.lineage import begin as begin_lineage
from cdc_platform.pipeline.on_demand.status import CopyStatus, Status, TableStatus
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.printing.tables import as_text
from cdc_platform_tests.commands.invoking import begin, run
from cdc_platform_tests.programs import COMMAND_LINE, start
from cdc_platform_tests.yaml_files import bank_attributes, write_defs, write_two

WITHIN_S = 120.0
START = 1_800_000_000_000_000
STATUS = Status(
    pipeline="bank",
    cycle=1,
    watermark_micros=START,
    lag_s=1.0,
    delivers_events=False,
    live_partitions=(),
    waiting_partitions=(),
    finished_partitions=0,
    tables={"accounts": TableStatus(3, 1)},
    cut=None,
    quarantined=0,
    findings=(),
)


def test_status_of_a_new_pipeline(tmp_path: Path) -> None:
    """A pipeline without a cut has a status, even if the source does not answer."""
    code, output, _ = run("status", begin(write_defs(tmp_path)))
    assert code == 0
    assert output.startswith("pipeline    bank, no cycle yet\nwatermark   none yet\nlag         -\n")
    assert "0 live, 0 waiting, 0 finished" in output


@pytest.mark.parametrize("type_name", COMPONENTS)
@pytest.mark.parametrize("start_micros", [0, START])
def test_before_the_first_cycle_there_is_no_watermark(
    tmp_path: Path, type_name: str, start_micros: int
) -> None:
    """For no source is the start of the lineage a watermark, and nothing is 56 years silent."""
    source = {
        "SpannerPipeline": bank_attributes()["source"],
        "DatastreamPipeline": {"path": "stream"},
        "DebeziumPipeline": {"input": {"files": {"path": "stream"}}},
    }[type_name.rpartition(".")[2]]
    attributes = {"name": "new", "lake": {"path": "lake"}, "source": source}
    defs = write_defs(tmp_path, attributes, type_name)
    save_lineage(open_pipeline(load_settings(defs)).lake, begin_lineage(start_micros))
    _, output, _ = run("status", defs)
    assert output.startswith("pipeline    new, no cycle yet\nwatermark   none yet\nlag         -\n")
    (status,) = json.loads(run("status", defs, "--json")[1])
    assert [status[name] for name in ("watermark", "lag_s", "silence_s", "polled")] == [None] * 4


def test_status_as_json(tmp_path: Path) -> None:
    """`--json` prints an array with an object for each pipeline, and everything in it."""
    _, output, _ = run("status", begin(write_defs(tmp_path)), "--json")
    (status,) = json.loads(output)
    assert (status["pipeline"], status["cycle"], status["cut"], status["tables"]) == ("bank", 0, None, {})


def test_status_starts_no_spark(tmp_path: Path) -> None:
    """The status needs neither pyspark nor a JVM, and the module of the sensor does not import it either.

    Nor does either import Alembic, which only Dagster's storage needs.
    """
    arguments = ["status", str(begin(write_defs(tmp_path)))]
    code = f"import sys; from cdc_platform.cli import main; main({arguments!r}, standalone_mode=False); "
    code += "import cdc_platform.sensors; print({'alembic', 'pyspark'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "set()"


def test_a_pipeline_that_cannot_be_read_has_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong after the lake was opened is reported in its place, and the exit code is 1."""

    def conflict(*_args: object) -> None:
        raise CommitConflict("another run was first")

    monkeypatch.setattr("cdc_platform.pipeline.on_demand.status.read_status", conflict)
    defs = begin(write_defs(tmp_path))
    code, output, _ = run("status", defs)
    assert (code, output.split(maxsplit=2)[:2]) == (1, ["pipeline", "bank"])
    assert output.endswith("cannot be read: CommitConflict: another run was first\n")
    code, output, _ = run("status", defs, "--json")
    assert (code, json.loads(output)) == (
        1,
        [{"pipeline": "bank", "error": "CommitConflict: another run was first"}],
    )


def test_a_low_terminal_shows_what_matters_first() -> None:
    """The tables of a watched pipeline come above its partitions, of which only some are named."""
    keys = tuple(f"partition-{number}" for number in range(12))
    status = replace(STATUS, live_partitions=keys)
    lines = [line.strip() for line in as_text(describe_statuses([status], max_partitions=5)).splitlines()]
    names = [line.split()[0] if line else "" for line in lines]
    assert names[:8] == ["pipeline", "watermark", "lag", "cut", "checks", "quarantine", "", "table"]
    assert lines[-6:] == [*keys[:5], "and 7 more"]
    assert set(keys) <= set(as_text(describe_statuses([status])).split())


@pytest.mark.parametrize(
    ("lag_s", "shown"),
    [(1.0, "1.0 s"), (59.123, "59.123 s"), (312.736, "5 min 13 s"), (3_600_000.5, "41 d 16 h")],
)
def test_a_lag_is_shown_as_people_read_it(lag_s: float, shown: str) -> None:
    """Seconds are exact while they are few; JSON has them all."""
    status = replace(STATUS, lag_s=lag_s)
    assert f"{shown} behind the clock" in as_text(describe_statuses([status]))
    silent = as_text(describe_statuses([replace(status, delivers_events=True)]))
    assert f"{shown} since the source last had something to read" in silent
    assert lag_s == status.to_dict()["lag_s"]


def test_a_backlog_of_events_is_a_lag() -> None:
    """Files and topics of which the newest cycle has read a part are behind, not silent."""
    status = replace(STATUS, delivers_events=True, left_since_micros=START)
    text = as_text(describe_statuses([status]))
    assert "1.0 s behind the source: the newest cycle has read only a part of what waits" in text
    plain = status.to_dict()
    assert (1.0, None, to_rfc3339(START)) == (plain["lag_s"], plain["silence_s"], plain["left_since"])


def test_a_check_that_did_not_pass_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name, its asset, its age and what it saw are below the counts, failures first, and only a few.

    What it saw was so when it ran: the lag in a result of `fresh` may be an hour older than that above it.
    """
    ran_s = 1_800_000_000.0
    checks = [
        LastResult(name, "bank/accounts", name == "good", name == "odd", ran_s, f"{name} rows")
        for name in ("good", "odd", "bad", "worse", "worst")
    ]
    clock = SimpleNamespace(time=lambda: ran_s + 200.2)
    monkeypatch.setattr("cdc_platform.commands.reading.status.time", clock)
    shown = as_text(describe_statuses([replace(STATUS, checks=tuple(checks))]))
    expected = [
        "checks      3 failed, 1 passed, 1 warning, last 3 min 20 s ago",
        *(
            f"{' ' * 12}{name} on bank/accounts, 3 min 20 s ago: {name} rows"
            for name in ("bad", "worse", "worst")
        ),
        f"{' ' * 12}and 1 more",
    ]
    lines = [line.rstrip() for line in shown.splitlines()]
    begin_line = lines.index(expected[0])
    assert expected == lines[begin_line : begin_line + len(expected)]
    lines = as_text(describe_statuses([replace(STATUS, checks=tuple(checks[:2]))])).splitlines()
    assert "            odd on bank/accounts, 3 min 20 s ago: odd rows" in [line.rstrip() for line in lines]


def test_a_copy_has_its_rate_and_the_time_left() -> None:
    """They are those of the status page; before the first batch ends there are none."""
    copies = {name: CopyStatus(1, START, 100, 40, 4000, rate) for name, rate in (("a", 2.0), ("b", None))}
    status = replace(STATUS, copies=copies)
    lines = as_text(describe_statuses([status])).splitlines()
    assert [line.split()[1:-1] for line in lines[-2:]] == [
        ["4,000", "40", "100", "200", "30", "s"],
        ["4,000", "40", "100", "-", "-"],
    ]
    shown = status.to_dict()["copies"]
    assert [(copy["rows_per_s"], copy["left_s"]) for copy in shown.values()] == [(200.0, 30.0), (None, None)]


def test_watching_continues_after_an_error(tmp_path: Path) -> None:
    """A pipeline that has never run is named, and shown once it has; so it is for an error in its place.

    In a pipe each look is a block with its moment; a signal is no failure.
    """
    defs = begin(write_two(tmp_path), "bank")
    (catalog,) = (tmp_path / "lake").rglob("catalog.db")
    with start(tmp_path / "log", COMMAND_LINE, "status", defs, "--watch", "--every", "0.1") as program:
        program.wait_for("bank, no cycle yet", WITHIN_S)
        program.wait_for("holds no pipeline `shop`", WITHIN_S)
        begin(defs, "shop")
        program.wait_for("shop, no cycle yet", WITHIN_S)
        sound = catalog.read_bytes()
        catalog.write_bytes(b"garbage " * 1000)
        program.wait_for("cannot be read: ", WITHIN_S)
        catalog.write_bytes(sound)
        program.wait_for("quarantine", WITHIN_S, times=program.output().count("quarantine") + 1)
        program.process.send_signal(signal.SIGTERM)
        assert program.ends_with(WITHIN_S) == 0, program.output()
    assert "Traceback" not in program.output()
    lines = program.output().splitlines()
    at = lines.index("pipeline    bank, no cycle yet")
    assert lines[at - 1].endswith("Z")
