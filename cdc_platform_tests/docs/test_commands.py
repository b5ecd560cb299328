"""Commands that pages show have the options that they show."""

import re
import shlex
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from configparser import ConfigParser
from contextlib import chdir, redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path
from runpy import run_module
from typing import Final

import click
import pytest

from cdc_platform.cli import main
from cdc_platform.components.loading import COMPONENTS
from cdc_platform_tests.docs.code_blocks import BLOCKS, PAGES, ROOT, Block, blocks_of, parts_not_run
from cdc_platform_tests.docs.shown_commands import commands_of, commands_to_run

PLACEHOLDERS: Final = {"N": "1"}
"""What stands for a value in a synopsis, where the value must be of some form."""
OPTION: Final = re.compile(r"--[a-z-]+")
EXTRAS: Final = re.compile(r"\[([\w,]+)\]")
BENCHMARKS: Final = sorted(
    {
        command
        for page in PAGES
        for command in re.findall(r"`python -m (benchmarks\.[^`\n]+ --[^`\n]+)`", page.read_text("utf-8"))
    }
)
"""Benchmarks in the sentences and tables of pages, with their options."""


def check_platform(words: Sequence[str]) -> None:
    """Parse a command of `cdc-platform`; files that it names are made where it runs."""
    command: click.Command = main
    arguments = list(words)
    while isinstance(command, click.Group) and arguments and arguments[0] in command.commands:
        command = command.commands[arguments.pop(0)]
    assert not isinstance(command, click.Group), words
    for word in arguments:
        if word.endswith(".yaml"):
            Path(word).parent.mkdir(parents=True, exist_ok=True)
            Path(word).touch()
    command.make_context(command.name, arguments)


def check_pip(words: Sequence[str]) -> None:
    """Look for the extras that are installed."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    named = {extra for word in words for names in EXTRAS.findall(word) for extra in names.split(",")}
    assert set() == named - set(setup["options.extras_require"])


def check_python(words: Sequence[str]) -> None:
    """Look for the module, and for its options in its help."""
    flag, module, *arguments = words
    assert flag == "-m"
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as shown:
        patch.setattr(sys, "argv", [module, "--help"])
        with pytest.raises(SystemExit) as ended:
            run_module(module, run_name="__main__")
    assert not ended.value.code
    help_page = shown.getvalue()
    assert [word for word in arguments if OPTION.match(word) and word not in help_page] == []


def check_scaffold(words: Sequence[str]) -> None:
    """Look for the component whose file is written."""
    *command, component, _name = words
    assert command == ["scaffold", "defs"]
    assert component in COMPONENTS


def check_dagster(words: Sequence[str]) -> None:
    """Let Dagster parse the command, with the file that it names."""
    from dagster._cli import create_dagster_cli

    command: click.Command = create_dagster_cli()  # type: ignore[no-untyped-call]  # Dagster gives no types
    arguments = list(words)
    while isinstance(command, click.Group):
        command = command.commands[arguments.pop(0)]
    with chdir(ROOT):  # the file is the project's own
        command.make_context(command.name, arguments)


def check_pytest(words: Sequence[str]) -> None:
    """Look for the files and the marks that it names."""
    marks = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for flag, mark in pairwise(words):
        assert flag != "-m" or f'"{mark.removeprefix("not ")}:' in marks
    assert [word for word in words if "/" in word and not (ROOT / word).exists()] == []


def check_anything(words: Sequence[str]) -> None:
    """Leave the programs of others alone that have no options here."""
    assert [word for word in words if word.startswith("-")] == []


CHECKS: Final[dict[str, Callable[[Sequence[str]], None]]] = {
    "cdc-platform": check_platform,
    "pip": check_pip,
    "python": check_python,
    "dg": check_scaffold,
    "dagster": check_dagster,
    "pytest": check_pytest,
    "pre-commit": check_anything,
    "eval": check_anything,
}
RUN: Final = frozenset({"cdc-platform", "eval", "export"})
"""Programs whose commands are run as a page shows them."""


@pytest.mark.parametrize("block", blocks_of("bash", "console"), ids=lambda block: block.place)
def test_commands_parse(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of a block is one of a program that is known here, with options that it has."""
    monkeypatch.chdir(tmp_path)
    commands = list(commands_of(block, PLACEHOLDERS))
    assert commands
    for program, *words in commands:
        if program == "export":
            name, value = words[0].split("=")
            Path(value).mkdir()
            monkeypatch.setenv(name, value)
        else:
            CHECKS[program](words)


@pytest.mark.parametrize("block", blocks_of("bash", "console"), ids=lambda block: block.place)
def test_commands_are_run_or_say_that_they_are_not(block: Block) -> None:
    """A comment before a block names each command that no test runs, and no other."""
    programs = {words[0] for words in commands_to_run(block, PLACEHOLDERS)}
    assert set() == programs - RUN
    lines = [" ".join(words) for words in commands_of(block, PLACEHOLDERS)]
    assert [part for part in block.not_run if not any(line.startswith(part) for line in lines)] == []


def test_only_blocks_of_commands_have_commands_that_are_not_run() -> None:
    """A comment that a test would not look at is at no other block."""
    assert [
        block.place for block in BLOCKS if block.not_run and block.language not in {"bash", "console"}
    ] == []


def test_a_comment_names_commands_with_their_reasons() -> None:
    """Each command in backticks is one that a colon and a reason follow; other names are none."""
    assert parts_not_run("<!-- not run: `pip`: installed. `dagster dev`: `demo/` starts it. -->") == (
        "pip",
        "dagster dev",
    )
    assert parts_not_run("*Not run by a test: `pip`: installed.*") == ()


class Parsed(Exception):
    """The parser of a program accepts its options."""


@pytest.fixture
def parse_benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what parses the options of a benchmark, and does not run it."""
    parse = ArgumentParser.parse_args

    def parse_alone(parser: ArgumentParser) -> None:
        parse(parser)
        raise Parsed

    def parse_command(command: str) -> None:
        words = shlex.split(re.sub(r"[\[\]]", "", command).replace("KIND", "'spanner: ordinary'"))
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(Parsed):
            run_module(words[0], run_name="__main__")

    monkeypatch.setattr(ArgumentParser, "parse_args", parse_alone)
    return parse_command


@pytest.mark.parametrize("command", BENCHMARKS)
def test_benchmarks_of_sentences_parse(command: str, parse_benchmark: Callable[[str], None]) -> None:
    """Pages name benchmarks in sentences and tables with options and values that they accept."""
    parse_benchmark(command)


def test_a_benchmark_with_a_wrong_option_is_found(parse_benchmark: Callable[[str], None]) -> None:
    """An option without its value fails the test."""
    with pytest.raises(SystemExit):
        parse_benchmark("benchmarks.crash_points --overtaken")


@pytest.mark.parametrize(
    "line",
    [
        "cdc-platform sync defs.yaml --for-ever",  # no such option
        "cdc-platform quarantine list defs.yaml --cycle soon",  # no number
        "cdc-platform synch defs.yaml",  # no such command
        "pip install 'cdc_platform[oracle]'",  # no such extra
        "pytest -m 'not slow'",  # no such mark
        "dg scaffold defs cdc_platform.components.oracle.OraclePipeline my_shop",  # no such component
    ],
)
def test_a_wrong_command_is_found(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that its program would refuse fails the test."""
    monkeypatch.chdir(tmp_path)
    program, *words = shlex.split(line)
    with pytest.raises((AssertionError, click.UsageError)):
        CHECKS[program](words)
