"""How long a new user takes from a clone to the first query, by the commands of the pages, for each example.

Everything is new: the clone, its virtual environment, and the home folder with the caches of pip and of
Spark's packages. The reading and typing of a person is not measured.

python -m benchmarks.first_query
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.measure.harness import Report, arguments, must_equal, timed

ROOT: Final = Path(__file__).parents[1]
WITHIN_S: Final = 1800.0
PRINTED: Final = "one query"
"""What the demo prints before the query that it proposes."""


@dataclass(frozen=True)
class Example:
    """The commands from an installed clone to a query.

    Args:
        name: of the example.
        page: the page that has the commands.
        commands: what is run, one after the other; the last one is the query.
        alongside: what runs meanwhile in another terminal.
        is_ready: a text that it says when it can be used.
        expected: a part of what the query prints.
    """

    name: str
    page: str
    commands: tuple[str, ...]
    expected: str
    alongside: str | None = None
    is_ready: str = ""


INSTALL: Final = "pip install -e '.[duckdb]'"
EXAMPLES: Final = (
    Example("demo", "README.md", (), "1000000", "cdc-platform demo", PRINTED),
    Example(
        "spanner",
        "docs/getting-started.md",
        (
            "cdc-platform sync examples/bank/defs.yaml --until-caught-up",
            'cdc-platform query examples/bank/defs.yaml "SELECT sum(balance) FROM accounts"',
        ),
        "1000000",
        "cdc-platform simulate --port 9010 --state .cdc_platform/examples/bank.json",
        "SPANNER_EMULATOR_HOST",
    ),
    Example(
        "datastream",
        "examples/datastream/README.md",
        (
            "cdc-platform sync examples/datastream/defs.yaml --until-caught-up",
            'cdc-platform query examples/datastream/defs.yaml "FROM customers"',
        ),
        "ben@example.org",
    ),
    Example(
        "debezium",
        "examples/debezium/README.md",
        (
            "cdc-platform sync examples/debezium/defs.yaml --until-caught-up",
            'cdc-platform query examples/debezium/defs.yaml --name article_enrich "FROM customers"',
        ),
        "dana@noanswer.org",
    ),
)


@dataclass(frozen=True)
class Newcomer:
    """Somebody with a clone and nothing else; what is run is logged next to it."""

    folder: Path

    @property
    def clone(self) -> Path:
        """The clone."""
        return self.folder / "cdc_platform"

    def run(self, command: str, folder: Path | None = None) -> str:
        """Run a command to its end, and return what it printed.

        Raises:
            ResultDiffers: it failed.
        """
        done = subprocess.run(
            self._shell(command),
            cwd=folder or self.clone,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        if done.returncode:
            print(done.stdout, done.stderr, file=sys.stderr)
        must_equal(0, done.returncode, command)
        return done.stdout

    @contextmanager
    def alongside(self, command: str, is_ready: str) -> Iterator[Callable[[str], str]]:
        """Run a command in another terminal until it is interrupted; yield what waits for a text of it."""
        log = self.folder / f"{shlex.split(command)[1]}.log"
        shell, environment = self._shell(command), self._environment()
        with (
            log.open("w") as out,
            subprocess.Popen(
                shell, cwd=self.clone, env=environment, stdout=out, stderr=out, start_new_session=True
            ) as process,
        ):

            def wait_for(text: str) -> str:
                give_up_at = time.monotonic() + WITHIN_S
                while text not in (output := log.read_text(encoding="utf-8", errors="replace")):
                    is_waited_for = process.poll() is None and time.monotonic() < give_up_at
                    must_equal(True, is_waited_for, f"{command}: {output}")
                    time.sleep(0.2)
                return output

            try:
                wait_for(is_ready)
                yield wait_for
            finally:
                os.killpg(process.pid, signal.SIGINT)

    def _shell(self, command: str) -> list[str]:
        activate = self.clone / ".venv" / "bin" / "activate"
        return ["bash", "-c", f"[ ! -e {activate} ] || source {activate}; exec {command}"]

    def _environment(self) -> dict[str, str]:
        own = {"HOME": str(self.folder / "home"), "COLUMNS": "300"}
        hidden = ("PYTHONPATH", "VIRTUAL_ENV", "SPANNER_EMULATOR_HOST", "DAGSTER_HOME")
        return {name: value for name, value in os.environ.items() if name not in hidden} | own


def query_first(newcomer: Newcomer, example: Example) -> None:
    """Run the commands of an example, print how long each takes, and verify the result of the query."""
    with ExitStack() as stack:
        commands: Sequence[str] = example.commands
        if example.alongside is not None:
            wait_for = stack.enter_context(newcomer.alongside(example.alongside, example.is_ready))
            commands = commands or re.findall(
                rf"{PRINTED} +(cdc-platform query .+)", wait_for("FROM accounts")
            )
        output = ""
        for command in commands:
            begun = time.monotonic()
            output = newcomer.run(command)
            print(f"  {time.monotonic() - begun:6.1f} s  {command}")
        must_equal(True, example.expected in output, f"{example.name}: {output}")


def main() -> None:
    """Measure and report."""
    parser = arguments(str(__doc__))
    parser.add_argument("--only", choices=[example.name for example in EXAMPLES], help="one example alone")
    options = parser.parse_args()
    report = Report("first_query", options)
    newcomer = Newcomer(options.work / "first_query")
    shutil.rmtree(newcomer.folder, ignore_errors=True)
    (newcomer.folder / "home").mkdir(parents=True)
    clone = f"git clone -q {shlex.quote(str(ROOT))} cdc_platform"
    report.note("clone", timed(lambda: newcomer.run(clone, newcomer.folder)), "s")
    report.note("venv", timed(lambda: newcomer.run(f"{sys.executable} -m venv .venv")), "s")
    report.note("install", timed(lambda: newcomer.run(INSTALL)), "s", command=INSTALL)
    for example in EXAMPLES:
        if options.only in (None, example.name):
            seconds = timed(partial(query_first, newcomer, example))
            report.note(example.name, seconds, "s", commands=len(example.commands) + bool(example.alongside))


if __name__ == "__main__":
    main()
