"""The examples in the help of the commands."""

import re
from pathlib import Path
from typing import Final

import click
import pytest

from cdc_platform.cli import main
from cdc_platform.commands.servers.simulate import simulate, to_settings
from cdc_platform_tests.commands.invoking import PROGRAM, parsed, run

DEFS: Final = re.compile(r"\S+\.yaml")


def examples_of(command: click.Command) -> list[str]:
    """Return the lines of a command's help, after its options, that start the program."""
    lines = map(str.strip, (command.epilog or "").splitlines())
    return [line for line in lines if line.startswith(PROGRAM)]


EXAMPLES: Final = [line for command in (main, *main.commands.values()) for line in examples_of(command)]


@pytest.mark.parametrize("name", main.commands)
def test_every_command_has_examples(name: str) -> None:
    """Anyone who asks for help sees how the command is used."""
    assert any(line.split()[1] == name for line in examples_of(main.commands[name]))


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_are_taken(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example runs as written if the files that it names exist."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").mkdir()
    for defs in map(Path, DEFS.findall(line)):
        defs.parent.mkdir(parents=True, exist_ok=True)
        defs.touch()

    context = parsed(line)

    if context.command is simulate:
        assert to_settings(context.params)


def test_an_example_that_is_wrong_is_found() -> None:
    """The parser that judges the examples is that of the commands."""
    for wrong in ("simulate --dialect klingon", "simulate --typo", "sync nowhere.yaml"):
        with pytest.raises(click.UsageError):
            parsed(PROGRAM + wrong)


def choices() -> list[tuple[str, str, str, str]]:
    """Return command, option, parameter and value of everything that can be chosen."""
    return [
        (name, option.opts[0], str(option.name), str(value))
        for name, command in main.commands.items()
        for option in command.params
        if isinstance(option.type, click.Choice)
        for value in option.type.choices
    ]


@pytest.mark.parametrize(("command", "option", "parameter", "value"), choices())
def test_choices_of_the_help_are_taken(command: str, option: str, parameter: str, value: str) -> None:
    """A value that the help offers is taken, and is what the command works with."""
    _, text, _ = run(command, "--help")

    assert value.lower() in text.lower()
    line = f"{PROGRAM}{command} {option} {value}"
    assert value == parsed(line, is_whole=False).params[parameter]


@pytest.mark.parametrize(("option", "value"), [("--capture", "new_row"), ("--dialect", "PostgreSQL")])
def test_case_of_a_choice_is_free(option: str, value: str) -> None:
    """A value of Spanner's may be written in small letters, and a dialect in large ones."""
    settings = to_settings(parsed(f"{PROGRAM}simulate {option} {value}").params)

    assert value.upper() in (settings.value_capture_type.value.upper(), settings.dialect.value.upper())
