"""Running the commands of pages, each on what its page is about, with values of the lake itself."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from cdc_platform_tests.commands.invoking import run
from cdc_platform_tests.docs.code_blocks import ROOT, Block, blocks_of
from cdc_platform_tests.programs import COMMAND_LINE, ENVIRONMENT, free_port, start_command

ASSIGNMENT: Final = re.compile(r"[A-Z_]+=")
WITHIN_S: Final = 120.0
ENDLESS: Final = {
    ("dashboard",): ("http://127.0.0.1:", "--port"),
    ("simulate",): ("SPANNER_EMULATOR_HOST=", "--port"),
    ("status", "--watch"): ("partitions", None),
}
"""Commands that run until they are stopped: what they print, and the option that gives them a free port."""
EXAMPLES: Final = re.compile(r"(?<!\S)(examples/(datastream|debezium)/)?defs\.yaml")


def lines_of(block: Block) -> Iterator[str]:
    """Yield the command lines of a block; those of a console have a prompt, and output between them."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if block.language == "bash":
            yield line
        elif line.startswith("$ "):
            yield line.removeprefix("$ ")


def commands_of(block: Block, values: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the words of each command of a block, without comments and variables in front.

    Args:
        block: a block of commands.
        values: what stands for a placeholder of a synopsis.
    """
    for line in lines_of(block):
        for part in line.split(" && "):
            is_synopsis = " [--" in part
            words = shlex.split(re.sub(r"[\[\]]", "", part) if is_synopsis else part, comments=True)
            while words and ASSIGNMENT.match(words[0]):
                words.pop(0)
            if words:
                yield [values.get(word, word) if is_synopsis else word for word in words]


def is_marked(block: Block, words: list[str]) -> bool:
    """Return whether the page says that a command is not run."""
    return any(words[: len(marked.split())] == marked.split() for marked in block.not_run)


def commands_to_run(block: Block, values: Mapping[str, str]) -> list[list[str]]:
    """Return the words of each command of a block that is run."""
    return [words for words in commands_of(block, values) if not is_marked(block, words)]


SHOWN: Final = [block for block in blocks_of("bash", "console") if commands_to_run(block, {})]
"""Blocks with a command that is run."""
OF_EXAMPLES: Final = [block for block in SHOWN if EXAMPLES.search(block.text)]
OF_READERS: Final = [
    block for block in SHOWN if block.page in {"docs/explain.md", "docs/past-cuts.md", "docs/reading.md"}
]
OF_SIMULATOR: Final = [block for block in SHOWN if block not in OF_EXAMPLES and block not in OF_READERS]


def run_commands(block: Block, folder: Path, values: Mapping[str, str]) -> None:
    """Run the commands of a block in a folder, the current one; fail when one does not end with 0.

    Args:
        block: a block of commands.
        folder: what the files of the block lie in.
        values: what stands for a word of the block: a placeholder, a number or a moment.
    """
    for program, *words in commands_to_run(block, values):
        arguments = [values.get(word, word) for word in words]
        if program == "export":
            name, _, value = arguments[0].partition("=")
            os.environ[name] = value
        elif program == "eval":
            _run_shell(block.text)
        elif ending := next((end for names, end in ENDLESS.items() if set(names) <= set(words)), None):
            _run_until_ready(folder, arguments, *ending)
        else:
            assert program == "cdc-platform"
            code, output, errors = run(*arguments)
            assert code == 0, output + errors


def _run_shell(text: str) -> None:
    environment = {
        **ENVIRONMENT,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    command = ["bash", "-c", f"{text}\ncomplete -p cdc-platform"]
    subprocess.run(command, env=environment, check=True, timeout=WITHIN_S, stdout=subprocess.DEVNULL)


def _run_until_ready(folder: Path, arguments: list[str], ready: str, port_option: str | None) -> None:
    port = [] if port_option is None else [port_option, str(free_port())]
    command = [sys.executable, "-m", COMMAND_LINE, *arguments, *port]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with start_command(folder / "log", command, environment, folder) as program:
        program.wait_for(ready, WITHIN_S)
        program.process.send_signal(signal.SIGINT)
        assert program.ends_with(WITHIN_S) == 0, program.output()
