"""`cdc-platform explain`: which texts are keys, and which are options."""

from pathlib import Path

import pytest

from cdc_platform.commands.error_texts import ERROR_PAGES
from cdc_platform.errors import RowNotFound
from cdc_platform_tests.commands.invoking import begin, run
from cdc_platform_tests.yaml_files import write_defs


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["-5"], "-5"),
        (["-5", "--name", "bank"], "-5"),
        (["--name", "bank", "-.5e3"], "-.5e3"),
        (["-Infinity"], "-Infinity"),
        (["--", "-5"], "-5"),
        (["--name", "bank", "--", "--json"], "--json"),  # a text like any other
    ],
)
def test_a_negative_number_is_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], key: str
) -> None:
    """It needs no `--` before it, which another key with a dash does."""

    def look_up(_pipeline: object, _table: str, text: str) -> None:
        raise RowNotFound(text)

    monkeypatch.setattr("cdc_platform.pipeline.on_demand.explanation.explain_row", look_up)
    actual = run("explain", begin(write_defs(tmp_path)), "accounts", *arguments)
    assert actual == (1, "", f"RowNotFound: {key}\nSee {ERROR_PAGES[0]}/RowNotFound.md\n")


@pytest.mark.parametrize("option", ["--jsn", "-j"])
def test_an_option_that_is_none_is_no_key(tmp_path: Path, option: str) -> None:
    """A misspelled option is refused by its name."""
    code, _, errors = run("explain", write_defs(tmp_path), "accounts", option)
    assert code == 2
    assert f"No such option '{option}'" in errors.replace(":", "")
