"""`dg scaffold` writes a file that loads, and explains itself."""

from pathlib import Path
from typing import Literal

import dagster as dg
import pytest
from dagster.components.scaffold.scaffold import NoParams

from cdc_platform.components.loading import load_settings
from cdc_platform.components.scaffolding import PipelineScaffolder
from cdc_platform_tests.yaml_files import TYPE, change_stream_of


def request(
    target: Path, kind: Literal["yaml", "python"] = "yaml", *, append: bool = False
) -> "dg.ScaffoldRequest[NoParams]":
    """Return what dg asks of a scaffolder."""
    return dg.ScaffoldRequest(TYPE, target, kind, None, NoParams(), append)


@pytest.mark.parametrize(
    ("folder", "name"), [("bank", "bank"), ("My Bank", "my_bank"), ("1st", "pipeline_1st")]
)
def test_the_file_loads_and_is_named_after_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, name: str
) -> None:
    """The scaffolded file is a valid pipeline once the project is known, with a name that can be one."""
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    (tmp_path / folder).mkdir()
    PipelineScaffolder().scaffold(request(tmp_path / folder))
    settings = load_settings(tmp_path / folder / "defs.yaml")
    assert (name, "my-project") == (settings.name, change_stream_of(settings).project)


def test_every_setting_of_the_first_hour_has_a_comment(tmp_path: Path) -> None:
    """The file shows, commented out, what is commonly set next."""
    PipelineScaffolder().scaffold(request(tmp_path))
    text = (tmp_path / "defs.yaml").read_text(encoding="utf-8")
    for setting in ("start_timestamp", "emulator_host", "catalog", "tables", "remote", "follow_s"):
        assert f"# {setting}" in text or f"#   {setting}" in text


def test_python_format_is_left_to_dagster(tmp_path: Path) -> None:
    """With `--format python` a component function is written, as for every component."""
    PipelineScaffolder().scaffold(request(tmp_path, "python"))
    assert "SpannerPipeline" in (tmp_path / "component.py").read_text(encoding="utf-8")
