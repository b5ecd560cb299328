"""The component's schema is its documentation."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.components.loading import load_settings
from cdc_platform.components.schemas import group_of
from cdc_platform.components.spanner import SpannerPipeline
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sensors import RunSettings
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform_tests.yaml_files import write_defs


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every property of a JSON schema and of its definitions, with the name of its model."""
    for name, part in {"SpannerPipeline": schema, **schema.get("$defs", {})}.items():
        for key, described in part.get("properties", {}).items():
            yield f"{name}.{key}", described


def test_every_setting_is_described() -> None:
    """Editors, `dg list components` and the UI say what each setting means."""
    schema = SpannerPipeline.model().model_json_schema()
    by_name = dict(properties(schema))
    assert [name for name, described in by_name.items() if not described.get("description")] == []
    assert len(by_name) > 30


def test_a_misspelled_setting_is_an_error_of_the_schema() -> None:
    """No model of the component takes unknown keys."""
    schema = SpannerPipeline.model().model_json_schema()
    models = {"SpannerPipeline": schema, **schema["$defs"]}
    assert set() == {name for name, part in models.items() if part.get("additionalProperties") is not False}


def test_what_a_file_leaves_out_is_what_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The YAML face and the settings behind it have the same defaults, so that neither can drift."""
    monkeypatch.delenv("SPANNER_EMULATOR_HOST", raising=False)
    source = {"project": "p", "instance": "i", "database": "d", "change_stream": "s"}
    path = write_defs(tmp_path, {"name": "bank", "source": source, "lake": {"path": "lake"}})
    expected = PipelineSettings(
        name="bank",
        source=SpannerSettings("p", "i", "d", "s", request_tag="cdc_platform/bank"),
        lake=LakeSettings(path=str(tmp_path / "lake")),
    )
    assert expected == load_settings(path)


def test_runs_have_the_defaults_of_the_sensor() -> None:
    """The group `runs` says what `RunSettings` says."""
    defaults = group_of(RunSettings, "Runs")().model_dump()
    assert RunSettings() == RunSettings(**{**defaults, "owners": tuple(defaults["owners"])})
