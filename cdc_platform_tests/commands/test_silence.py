"""No command is silent for more than five seconds, even where nobody answers it."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cdc_platform_tests.programs import COMMAND_LINE, start
from cdc_platform_tests.yaml_files import bank_attributes, write_defs

WITHIN_S = 120.0
LINE = r": \d\S* s so far"
"""The first line of a step, after its name."""


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_lake_that_does_not_answer_is_waited_for_aloud(tmp_path: Path, silent_server: str) -> None:
    """Each command that reads a lake says after some seconds that it still does."""
    lake = {"path": str(tmp_path / "lake"), "catalog": {"type": "rest", "uri": f"http://{silent_server}"}}
    defs = write_defs(tmp_path, bank_attributes(lake=lake))
    commands: tuple[tuple[str | Path, ...], ...] = (
        ("status", defs),
        ("list", defs),
        ("cuts", defs),
        ("cuts", defs, "--pin", "1"),
        ("query", defs, "SELECT 1"),
        ("explain", defs, "accounts", "1"),
        ("quarantine", "show", defs, "record"),
    )
    with ExitStack() as stack:
        for program in [
            stack.enter_context(start(tmp_path / f"{number}.log", COMMAND_LINE, *command))
            for number, command in enumerate(commands)
        ]:
            program.wait_for_match(LINE, WITHIN_S)


def test_a_source_that_does_not_answer_is_waited_for_aloud(tmp_path: Path, silent_server: str) -> None:
    """Sync says from its start that it looks at the source, not only once the first answer has come."""
    attributes = bank_attributes()
    attributes["source"]["emulator_host"] = silent_server
    with start(tmp_path / "log", COMMAND_LINE, "sync", write_defs(tmp_path, attributes)) as program:
        program.wait_for_match(f"look at the source{LINE}", WITHIN_S)
