"""A pipeline's YAML file becomes its settings, or an error that says which value to change."""

from pathlib import Path
from typing import Any

import pytest

from cdc_platform.components.loading import find_pipelines, load_component, load_settings
from cdc_platform.errors import SettingError
from cdc_platform_tests.yaml_files import bank_attributes, write_defs

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_example_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the repository is a pipeline named bank with two tables."""
    monkeypatch.setenv("SPANNER_EMULATOR_HOST", "localhost:9010")
    settings = load_settings(EXAMPLES / "bank" / "defs.yaml")
    assert (settings.name, settings.tables) == ("bank", ("accounts", "transfers"))
    assert settings.source.emulator_host == "localhost:9010"


def test_a_relative_lake_lies_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative lake path counts from the YAML file's folder, wherever the program is started."""
    path = write_defs(tmp_path)
    monkeypatch.chdir("/")
    assert str(tmp_path / "lake") == load_settings(path).lake.path


@pytest.mark.parametrize("lake", ["gs://bucket/lake", "/data/lake"])
def test_other_lake_paths_stay_as_they_are(tmp_path: Path, lake: str) -> None:
    """An object store prefix and an absolute folder are taken as they are."""
    path = write_defs(tmp_path, bank_attributes(lake={"path": lake, "catalog": {"type": "rest", "uri": "x"}}))
    assert lake == load_settings(path).lake.path


def test_templates_read_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`{{ env.X }}` is the variable's value, and no value where it is not set."""
    monkeypatch.setenv("BANK_DATABASE", "ledger")
    monkeypatch.delenv("BANK_REMOTE", raising=False)
    source = {**bank_attributes()["source"], "database": "{{ env.BANK_DATABASE }}"}
    attributes = bank_attributes(source=source, spark={"remote": "{{ env.BANK_REMOTE }}"})
    settings = load_settings(write_defs(tmp_path, attributes))
    assert (settings.source.database, settings.spark.remote) == ("ledger", None)


def test_the_request_tag_names_the_pipeline(tmp_path: Path) -> None:
    """Spanner's statistics tell which pipeline made a request."""
    assert load_settings(write_defs(tmp_path)).source.request_tag == "cdc_platform/bank"


BAD_VALUES: list[tuple[dict[str, Any], str, str]] = [
    # a required value left out
    ({"source": {"project": "p", "instance": "i", "database": "d"}}, "source.change_stream", "is missing"),
    # a misspelled key
    ({"laek": {"path": "lake"}}, "laek", "misspelled"),
    # a word where a number belongs
    ({"max_slice_s": "an hour"}, "max_slice_s", "is not right"),
    # a value out of its range, found by the source's own settings
    ({"source": {**bank_attributes()["source"], "heartbeat_ms": 1}}, "source.heartbeat_ms", "between"),
    # the same, within a nested setting
    ({"source": {**bank_attributes()["source"], "deadline_s": "soon"}}, "source.deadline_s", "is not right"),
    # a name that cannot be a namespace
    ({"name": "My Bank"}, "name", "lower-case"),
]


@pytest.mark.parametrize(("changes", "key", "problem"), BAD_VALUES)
def test_a_bad_value_is_named(tmp_path: Path, changes: dict[str, Any], key: str, problem: str) -> None:
    """An error names the file, the key within it, and what is wrong with the value."""
    path = write_defs(tmp_path, bank_attributes(**changes))
    with pytest.raises(SettingError, match=problem) as caught:
        load_settings(path)
    assert f"{path}: {key}" == caught.value.setting


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("type: other.Component\nattributes: {}\n", "type"),  # somebody else's component
        ("- a list\n", "type"),  # no component at all
        ("type: cdc_platform.components.spanner.SpannerPipeline\n", "attributes"),  # nothing said
    ],
)
def test_a_file_that_is_no_pipeline_is_refused(tmp_path: Path, text: str, setting: str) -> None:
    """A file that declares something else is an error of that file."""
    path = tmp_path / "defs.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingError) as caught:
        load_component(path)
    assert f"{path}: {setting}" == caught.value.setting


def test_text_that_is_not_yaml_is_refused(tmp_path: Path) -> None:
    """A file that cannot be parsed is an error that names it."""
    path = tmp_path / "defs.yaml"
    path.write_text("type: [", encoding="utf-8")
    with pytest.raises(SettingError, match=r"defs\.yaml.*YAML"):
        load_component(path)


def test_pipelines_are_found_below_a_folder(tmp_path: Path) -> None:
    """All pipelines below a folder are found, in a stable order; other components are passed over."""
    for name in ("b", "a", "other"):
        (tmp_path / name).mkdir()
    expected = (write_defs(tmp_path / "a"), write_defs(tmp_path / "b"))
    (tmp_path / "other" / "defs.yaml").write_text("type: other.Component\n", encoding="utf-8")
    assert expected == find_pipelines(tmp_path)
    assert (expected[0],) == find_pipelines(expected[0])
