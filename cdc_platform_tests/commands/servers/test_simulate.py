"""`cdc-platform simulate` as users start it."""

import json
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from cdc_platform.cli import main
from cdc_platform.commands.servers.simulate import parse_faults, to_settings
from cdc_platform.errors import SettingError
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.simulator.history.hours import OpeningHours
from cdc_platform.simulator.wire.simulator_settings import (
    PASSING_FAULTS,
    Fault,
    PartitionMode,
    SimulatorSettings,
)
from cdc_platform.sources.spanner.source import SpannerSource
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform_tests.programs import COMMAND_LINE, start
from cdc_platform_tests.simulator.histories import ORIGIN

WITHIN_S = 300.0


@pytest.mark.integration
def test_it_serves_and_writes_the_truth(tmp_path: Path) -> None:
    """It prints and writes the names to connect with, and the history file has every row that it served."""
    names_file, truth = tmp_path / "names.json", tmp_path / "truth.jsonl"
    options = ("--names", names_file, "--history", truth, "--age", "2", "--rate", "50", "--seed", "5")
    preloaded = 200
    rows_before = ("--preloaded", str(preloaded))
    with start(tmp_path / "log", COMMAND_LINE, "simulate", *options, *rows_before) as program:
        program.wait_for("SPANNER_EMULATOR_HOST=127.0.0.1:", WITHIN_S)
        names = json.loads(names_file.read_text())
        assert all(value in program.output() for value in names.values())
        fields = ("project", "instance", "database", "change_stream", "emulator_host")
        source = SpannerSource(SpannerSettings(**{field: names[field] for field in fields}))
        now = source.clock_micros()
        rows = {
            row["account_id"]: row["balance"]
            for batch in source.rows_at("accounts", now)
            for row in batch.to_pylist()
        }
        source.close()
        program.process.send_signal(signal.SIGINT)
        assert program.ends_with(WITHIN_S) == 0

    lines = truth.read_text().splitlines()
    first = json.loads(lines[0])
    assert first["server_transaction_id"] is None
    assert preloaded == len([change for change in first["changes"] if change["table"] == "transfers"])
    assert f"\n{len(lines) - 1:,} transactions since" in program.output()
    balances: dict[int, int] = {}
    for line in lines:
        transaction = json.loads(line)
        if (transaction["commit_timestamp"] or "") <= to_rfc3339(now):
            for change in transaction["changes"]:
                if change["table"] == "accounts":
                    key = int(change["keys"]["account_id"])
                    balances.pop(key, None)
                    if change["new"] is not None:
                        balances[key] = int(change["new"]["balance"])
    assert balances == rows


@pytest.mark.integration
def test_a_taken_port_is_reported(tmp_path: Path) -> None:
    """Two simulators never share a port."""
    with start(tmp_path / "one", COMMAND_LINE, "simulate") as program:
        program.wait_for("SPANNER_EMULATOR_HOST=", WITHIN_S)
        port = program.output().rsplit(":", 1)[1].strip()
        with start(tmp_path / "two", COMMAND_LINE, "simulate", "--port", port) as two:
            assert two.ends_with(WITHIN_S) == 1
            assert f"Port {port} is in use" in two.output()


def test_faults_by_name() -> None:
    """Faults are named in a list; `all` are those from which a reader can recover."""
    assert parse_faults("") == ()
    assert parse_faults("stalled, early-end") == (Fault.STALLED, Fault.EARLY_END)
    assert parse_faults("all") == PASSING_FAULTS
    with pytest.raises(SettingError, match=r"stalled.* but not: typhoon"):
        parse_faults("stalled,typhoon")


def test_every_fault_may_be_asked_for() -> None:
    """The help lists each fault by its name; the error for an unknown fault lists all of them."""
    text = CliRunner().invoke(main, ["simulate", "--faults", "typhoon"]).stderr
    help_text = "".join(CliRunner().invoke(main, ["simulate", "--help"]).stdout.split())

    assert [(fault,) for fault in Fault] == [parse_faults(fault.value) for fault in Fault]
    assert all(fault.value in text for fault in Fault)
    assert all(fault.value in help_text for fault in Fault)
    assert Fault.EXPIRED not in PASSING_FAULTS


def test_the_stall_is_as_long_as_asked_for() -> None:
    """Its seconds are a setting of the simulator; without the option there are five."""
    command = main.commands["simulate"]
    stalls = [
        to_settings(command.make_context("simulate", options).params).stall_s
        for options in ([], ["--faults", "stalled", "--stall", "0.5"])
    ]

    assert stalls == [5.0, 0.5]


@pytest.mark.parametrize(("option", "value"), [("--age", "5"), ("--origin", "2026-01-31T08:00:00Z")])
def test_begin_of_a_history_that_is_there_is_refused(tmp_path: Path, option: str, value: str) -> None:
    """A state file's history began when it began; an option that says otherwise is named."""
    state = tmp_path / "bank.json"
    OpeningHours.kept_in(state, SimulatorSettings(), ORIGIN)

    result = CliRunner().invoke(main, ["simulate", "--state", str(state), option, value])

    assert (result.exit_code, f"({option}) is" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--origin", "yesterday"), "must look like 2026-01-31T08:00:00Z"),
        (("--accounts", "3"), "must be at least 20"),
        (("--faults", "typhoon"), "typhoon"),
    ],
)
def test_bad_options_are_reported(options: tuple[str, str], problem: str) -> None:
    """An option that cannot be used is named with what it may be."""
    result = CliRunner().invoke(main, ["simulate", *options])

    assert (result.exit_code, problem in result.stderr) == (1, True)


@pytest.mark.parametrize(
    "option",
    ["--rate", "--age", "--partition-life", "--schema-changes-every", "--fault-probability", "--stall"],
)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1"])
def test_numbers_without_meaning_are_reported(option: str, value: str) -> None:
    """A value that is not a number is refused by the name of its option."""
    result = CliRunner().invoke(main, ["simulate", option, value])

    assert (result.exit_code, f"Invalid value for '{option}'" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("--rate", "0", "0<x<=100000"),
        ("--rate", "100001", "0<x<=100000"),
        ("--schema-changes-every", "0", "x>0"),
        ("--preloaded", "-1", "x>=0"),
    ],
)
def test_ranges_are_those_of_the_help(option: str, value: str, allowed: str) -> None:
    """A number out of range is refused with the range that the help states."""
    result = CliRunner().invoke(main, ["simulate", option, value])
    text = CliRunner().invoke(main, ["simulate", "--help"]).stdout

    assert (result.exit_code, allowed in result.stderr) == (2, True)
    assert allowed in text


@pytest.mark.parametrize("mode", list(PartitionMode))
def test_the_partition_mode_is_an_option(mode: PartitionMode) -> None:
    """Each mode has its name in Spanner's options, in any case; the first one needs no option."""
    command = main.commands["simulate"]
    options = command.make_context("simulate", ["--partition-mode", mode.value.lower()]).params
    assert mode is to_settings(options).partition_mode
    default = to_settings(command.make_context("simulate", []).params)
    assert PartitionMode.IMMUTABLE_KEY_RANGE is default.partition_mode


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["asia", "Asia"], "two entries with the name 'Asia'"),
        (["placement_default"], "two entries with the name"),
        (["a b"], "must be letters"),
        ([""], "must be letters"),
    ],
)
def test_names_of_placements_make_different_functions(names: list[str], problem: str) -> None:
    """Each ends the name of a read function, which in GoogleSQL knows no case."""
    arguments = ["--partition-mode", "mutable_key_range"]
    for name in names:
        arguments += ["--placement", name]
    options = main.commands["simulate"].make_context("simulate", arguments).params
    with pytest.raises(SettingError, match=problem):
        to_settings(options)


def test_placements_need_mutable_key_ranges() -> None:
    """Each option names a placement, which streams of the other mode have not."""
    command = main.commands["simulate"]
    names = ["--placement", "asia", "--placement", "europe"]
    options = command.make_context("simulate", ["--partition-mode", "mutable_key_range", *names]).params
    assert to_settings(options).placements == ("asia", "europe")
    with pytest.raises(SettingError, match="need `partition_mode` MUTABLE_KEY_RANGE"):
        to_settings(command.make_context("simulate", names).params)
