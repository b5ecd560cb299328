"""No command is silent for more than five seconds, even where nobody answers it."""

import json
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cdc_platform_tests.programs import ENVIRONMENT, Program, start_command
from cdc_platform_tests.yaml_files import bank_attributes, write_defs

WITHIN_S = 120.0
LINE = r": \d\S* s so far"
"""The first line of a step, after its name."""
FORKED: Final = """
import json, os, sys
from cdc_platform.cli import main
from cdc_platform.components import loading

commands = json.loads(sys.argv[1])
for log, command in commands.items():
    if not os.fork():
        for output in (1, 2):
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), output)
        main(command)
for _ in commands:
    os.wait()
"""
"""Runs commands at once, each in a process of its own with the libraries imported; ends with the last."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Program]]:
    """Commands whose lake, and one whose source, accepts connections and never answers."""
    folder = tmp_path_factory.mktemp("silent")
    with socket.create_server(("127.0.0.1", 0)) as server:
        commands = _commands(folder, f"127.0.0.1:{server.getsockname()[1]}")
        logs = {folder / f"{number}.log": command for number, command in enumerate(commands)}
        for log in logs:
            log.touch()
        order = json.dumps({str(log): [*map(str, command)] for log, command in logs.items()})
        with start_command(folder / "log", [sys.executable, "-c", FORKED, order], ENVIRONMENT) as parent:
            yield {f"{command[0]} {len(command)}": replace(parent, log=log) for log, command in logs.items()}


def _commands(folder: Path, silent_server: str) -> tuple[tuple[str | Path, ...], ...]:
    lake = {"path": str(folder / "lake"), "catalog": {"type": "rest", "uri": f"http://{silent_server}"}}
    defs = write_defs(folder, bank_attributes(lake=lake))
    attributes = bank_attributes()
    attributes["source"]["emulator_host"] = silent_server
    (folder / "source").mkdir()
    return (
        ("status", defs),
        ("list", defs),
        ("dashboard", defs, "--html", folder / "page.html"),
        ("cuts", defs),
        ("cuts", defs, "--pin", "1"),
        ("query", defs, "SELECT 1"),
        ("explain", defs, "accounts", "1"),
        ("quarantine", "show", defs, "record"),
        ("sync", write_defs(folder / "source", attributes)),
    )


def test_a_lake_that_does_not_answer_is_waited_for_aloud(programs: dict[str, Program]) -> None:
    """Each command that reads a lake says after some seconds that it still does."""
    readers = [program for name, program in programs.items() if not name.startswith("sync ")]
    assert len(readers) == 8
    for program in readers:
        program.wait_for_match(LINE, WITHIN_S)


def test_a_source_that_does_not_answer_is_waited_for_aloud(programs: dict[str, Program]) -> None:
    """Sync says from its start that it looks at the source, not only once the first answer has come."""
    programs["sync 2"].wait_for_match(f"look at the source{LINE}", WITHIN_S)
