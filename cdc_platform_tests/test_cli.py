"""The command line as a whole: its help, its errors, and that reading makes nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from cdc_platform.cli import main
from cdc_platform.components.loading import load_settings
from cdc_platform.errors import CommitConflict
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform_tests.commands.invoking import begin, run
from cdc_platform_tests.docs.code_blocks import ROOT
from cdc_platform_tests.yaml_files import bank_attributes, write_defs

COMMANDS = tuple(main.commands)
HEAVY = ("dagster", "pyspark", "pyiceberg", "pyarrow", "google.cloud.spanner_v1", "grpc")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_examples(command: str) -> None:
    """The help of every command says what it does, and shows it in use."""
    code, output, _ = run(command, "--help")
    assert code == 0
    assert f"cdc-platform {command}" in output.split("Examples:")[1]


def test_the_first_page_fits_a_terminal() -> None:
    """It describes each command in whole sentences, and leads to the demo and to a pipeline of one's own."""
    _, output, _ = run("--help")
    listed, steps = output.split("Commands:")[1].split("See the platform work")
    assert sorted(main.commands) == [row.split()[0] for row in listed.splitlines() if row.strip()]
    assert "..." not in listed
    assert all(step in steps for step in ("cdc-platform demo", "dg scaffold", "COMMAND --help"))
    assert len(output.splitlines()) < 50
    assert "..." not in run("quarantine", "--help")[1].split("Commands:")[1]


@pytest.mark.parametrize("command", ["status", "sync", "dashboard"])
def test_a_missing_place_is_explained(command: str) -> None:
    """The variable that can replace the argument is named where it is missing."""
    code, _, errors = run(command)
    assert code == 2
    assert "Missing argument 'DEFS" in errors
    assert "or set CDC_PLATFORM_DEFS" in errors


@pytest.mark.parametrize("command", ["status", "check", "maintain", "cuts", "explain accounts 1"])
def test_reading_makes_no_lake(tmp_path: Path, command: str) -> None:
    """Without a lake, commands that read say what to do, and create nothing."""
    verb, *arguments = command.split()
    code, output, errors = run(verb, write_defs(tmp_path), *arguments)
    assert (code, output) == (1, "")
    assert errors.startswith(f"PipelineNotFound: There is no lake at {tmp_path / 'lake'}")
    assert "start it with `cdc-platform sync`" in errors
    assert [tmp_path / "defs.yaml"] == list(tmp_path.iterdir())


def test_a_missing_lake_is_named_as_people_write_it(tmp_path: Path) -> None:
    """A path that is relative to the file of a pipeline is shown without the way up from there."""
    (tmp_path / "defs").mkdir()
    defs = write_defs(tmp_path / "defs", bank_attributes(lake={"path": "../lake"}))
    _, _, errors = run("status", defs)
    assert errors.startswith(
        f"PipelineNotFound: There is no lake at {tmp_path / 'lake'} (no file catalog.db)"
    )


def test_reading_makes_no_pipeline(tmp_path: Path) -> None:
    """A lake without the pipeline is left as it is, and those that it holds are named."""
    lake = open_pipeline(load_settings(begin(write_defs(tmp_path)))).lake
    before = lake.catalog.list_namespaces()
    code, _, errors = run("status", write_defs(tmp_path, bank_attributes(name="bnak")))
    assert code == 1
    assert "holds no pipeline `bnak`; it holds `bank`." in errors
    assert before == lake.catalog.list_namespaces()


def test_a_bad_setting_is_a_message_and_not_a_traceback(tmp_path: Path) -> None:
    """An error in a file is one line on stderr, and exit code 1."""
    code, output, errors = run("status", write_defs(tmp_path, bank_attributes(name="My Bank")))
    assert (code, output) == (1, "")
    assert errors.startswith("SettingError: Setting `")
    assert "Traceback" not in errors


def test_errors_of_the_platform_exit_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every error that the platform knows becomes exit code 1, and leads to its page."""

    def conflict(*_args: object) -> None:
        raise CommitConflict("another run was first")

    monkeypatch.setattr("cdc_platform.pipeline.opened.pipeline.open_existing", conflict)
    code, _, errors = run("status", begin(write_defs(tmp_path)))
    page = ROOT / "docs" / "errors" / "CommitConflict.md"
    assert (code, errors) == (1, f"CommitConflict: another run was first\nSee {page}\n")
    assert page.exists()


def test_help_imports_no_library_that_takes_long() -> None:
    """Anyone who asks for help waits for none of Dagster, Spark, Iceberg, Arrow and gRPC."""
    code = "import sys, cdc_platform.cli; print([name for name in sys.argv[1:] if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("demo", "--rate", "nan"),
        ("demo", "--seconds", "inf"),
        ("demo", "--port", "70000"),
        ("simulate", "--rate", "nan"),
        ("simulate", "--port", "-1"),
    ],
)
def test_a_value_that_an_option_does_not_accept_is_refused(command: str, option: str, value: str) -> None:
    """A value that an option does not accept is refused with the option's name, before anything starts."""
    code, _, errors = run(command, option, value)
    assert code == 2
    assert f"Invalid value for '{option}'" in errors


def test_a_moment_that_is_none_is_shown_with_an_example(tmp_path: Path) -> None:
    """The message has the form that the option takes, and what was found."""
    code, _, errors = run("query", begin(write_defs(tmp_path)), "FROM accounts", "--at", "yesterday")
    assert code == 1
    assert "`--at` must look like 2026-01-31T08:00:00Z, but is: 'yesterday'" in errors


def test_a_command_does_not_search_for_garbage_as_it_ends() -> None:
    """With all libraries loaded that would take more than a second."""
    program = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count())); "
    program += "from cdc_platform.cli import main; main(['list', '--help'])"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(answer.stdout.splitlines()[-1]) > 0
