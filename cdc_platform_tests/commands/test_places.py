"""DEFS of the commands: a file, a folder, or what the environment names."""

import json
from pathlib import Path

import pytest

from cdc_platform.components.places import PLACE_VARIABLE
from cdc_platform_tests.commands.invoking import begin, run
from cdc_platform_tests.yaml_files import bank_attributes, write_defs, write_two


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two files in it that declare three pipelines; one of them has run."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    begin(write_defs(tmp_path / "one", bank_attributes(name="first")))
    write_two(tmp_path / "two", bank_attributes(name="shop"))
    return tmp_path


def test_a_folder_declares_the_pipelines_of_its_files(folder: Path) -> None:
    """They are listed in the order of the files, with what each has published; lakes are next to them."""
    code, output, _ = run("list", folder, "--json")
    listed = json.loads(output)
    assert (code, [pipeline["pipeline"] for pipeline in listed]) == (0, ["first", "bank", "shop"])
    assert {pipeline["source"] for pipeline in listed} == {"Spanner"}
    assert listed[0]["lake"] == str(folder / "one" / "lake")
    assert [line.split()[0] for line in run("list", folder)[1].splitlines()[1:]] == ["first", "bank", "shop"]
    assert run("status", folder, "--name", "first")[0] == 0
    code, _, errors = run("cuts", folder, "--pin", "1")
    assert (code, "choose one with `--name`: `first`, `bank`, `shop`" in errors) == (1, True)


def test_the_environment_names_the_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It replaces a missing DEFS of every command, and no other argument."""
    monkeypatch.setenv(PLACE_VARIABLE, str(folder / "one"))
    assert run("status")[:2] == run("status", folder / "one" / "defs.yaml")[:2]
    assert "declares no pipeline `shop`, but `first`" in run("status", "--name", "shop")[2]
    for arguments in (("accounts", "-5"), ("--name", "first", "accounts", "7")):
        assert run("explain", *arguments)[2].startswith("TableNotFound: ")
    assert "no record found" in run("quarantine", "list")[1]
    assert run("status", folder / "two", "--name", "bank")[2].startswith("PipelineNotFound")


def test_the_environment_names_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A colon is a part of its path, for the command that takes several places, too."""
    (tmp_path / "a:b").mkdir()
    begin(write_defs(tmp_path / "a:b", bank_attributes(name="first")))
    begin(write_defs(tmp_path, bank_attributes(name="second")))
    monkeypatch.setenv(PLACE_VARIABLE, str(tmp_path / "a:b"))
    assert "first" in run("list")[1]
    page = tmp_path / "page.html"
    for arguments, name in (([], "first"), ([tmp_path / "defs.yaml"], "second")):
        assert run("dashboard", *arguments, "--html", page)[0] == 0
        text = page.read_text(encoding="utf-8")
        assert [each for each in ("first", "second") if f'id="{each}"' in text] == [name]


def test_without_a_place_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """DEFS is missing only where the environment has none either."""
    monkeypatch.delenv(PLACE_VARIABLE, raising=False)
    code, _, errors = run("status")
    assert (code, "Missing argument 'DEFS'" in errors) == (2, True)


def test_a_name_is_of_one_pipeline_of_a_folder(folder: Path) -> None:
    """Both files are named if two pipelines have the same name."""
    write_defs(folder / "one")
    code, _, errors = run("status", folder)
    assert (code, f"{folder / 'two' / 'defs.yaml'} (document 1): name` is already" in errors) == (1, True)
    assert f"used by {folder / 'one' / 'defs.yaml'}; choose another: bank" in errors


def test_a_folder_without_pipelines_is_named(tmp_path: Path) -> None:
    """The message says which files were looked for."""
    code, _, errors = run("sync", tmp_path)
    assert code == 1
    assert errors.startswith(f"SettingError: Setting `{tmp_path}` contains no file named defs.yaml")


MISTAKES = """\
type: cdc_platform.components.spanner.SpannerPipeline
attributes:
  name: bank
  source:
    project: p
    databse: d
  lake:
    path: lake
---
type: cdc_platform.components.spanner.SpannerPipeline
attributes:
  name: shop
  source: {project: p, instance: i, database: d, change_stream: s}
  read_tasks: 0
  lake: {path: lake}
---
type: cdc_platform.components.datastream.DatastreamPipeline
attributes:
  name: files
  source: {path: stream}
  lake: {path: "gs://{{ env.CDC_PLATFORM_UNSET }}/lake"}
---
type: other
"""


def test_all_mistakes_have_a_line(tmp_path: Path) -> None:
    """Every document of every file is judged, and each line can be clicked in an editor."""
    (tmp_path / "a").mkdir()
    first, second = tmp_path / "a" / "defs.yaml", tmp_path / "defs.yaml"
    first.write_text(MISTAKES, encoding="utf-8")
    second.write_text(f"{MISTAKES.partition('---')[0]}  lake: {{path: again}}\n", encoding="utf-8")
    code, output, errors = run("validate", tmp_path)
    lines = output.splitlines()
    assert (code, errors) == (1, "8 mistakes in 2 files\n")
    assert sorted(line.rpartition(" ")[0] for line in lines if line.endswith(" missing")) == [
        f"{first}:4: `source.{name}` is" for name in ("change_stream", "database", "instance")
    ]
    expected = (
        f"{first}:6: `source.databse` is not known; is it misspelled? Did you mean `source.database`?",
        f"{first}:14: `read_tasks` must be at least 1, but is: 0",
        f"{first}:21: `lake.path` needs the environment variable `CDC_PLATFORM_UNSET`",
        f"{first}:23: `type` must be ",
        f"{second}:9: `lake` occurs twice",
    )
    assert [part for part in expected if not any(line.startswith(part) for line in lines)] == []


def test_a_mistake_hides_no_other(tmp_path: Path) -> None:
    """Unknown, missing and mistyped settings, unset variables and refused values are all reported at once."""
    attributes = bank_attributes(
        tabels=["accounts"],
        max_window_s="an hour",
        read_tasks=0,
        idle_interval_s=-1,
        runs={"poll_s": 0, "schedule": "daily", "fresh_warn_s": 500, "fresh_fail_s": 100},
        lake={"path": "gs://{{ env.CDC_PLATFORM_UNSET }}/lake", "catalog": {"type": "rest"}},
    )
    attributes["source"] |= {"emulator_host": "http://localhost", "heartbeat_ms": 1}
    del attributes["source"]["change_stream"]
    code, output, _ = run("validate", write_defs(tmp_path, attributes))
    named = [line.split("`")[1] for line in output.splitlines()]
    expected = {
        *("tabels", "max_window_s", "read_tasks", "idle_interval_s"),
        *("runs.poll_s", "runs.schedule", "runs.fresh_warn_s", "lake.path", "lake.catalog.uri"),
        *("source.change_stream", "source.emulator_host", "source.heartbeat_ms"),
    }
    assert (code, expected, len(expected)) == (1, set(named), len(named))


def test_a_missing_lake_hides_no_mistake(tmp_path: Path) -> None:
    """The name and the source are validated, too; so is what a policy without its partner leaves."""
    source = {"path": "files", "max_files": 0, "backfill_policy": "force"}
    type_name = "cdc_platform.components.datastream.DatastreamPipeline"
    path = write_defs(tmp_path, {"name": "a shop", "source": source}, type_name)
    code, output, _ = run("validate", path)
    named = {"lake", "name", "source.max_files", "source.epochs"}
    assert (code, named) == (1, {line.split("`")[1] for line in output.splitlines()})


def test_a_name_is_in_use_where_other_settings_are_wrong(tmp_path: Path) -> None:
    """The first of two pipelines of one name has another mistake, which does not hide the second's."""
    path = write_two(tmp_path, bank_attributes())
    path.write_text(path.read_text(encoding="utf-8").replace("name: bank", "name: bank\n  read_tasks: 0", 1))
    code, output, _ = run("validate", path)
    assert (code, [line.split("`")[1] for line in output.splitlines()]) == (1, ["read_tasks", "name"])


def test_right_files_are_counted(folder: Path) -> None:
    """Nothing is opened: a lake that is not there is no mistake."""
    assert run("validate", folder) == (0, "", "3 pipelines in 2 files can be used\n")


def test_one_pipeline_is_no_pipelines(tmp_path: Path) -> None:
    """Numbers and nouns agree."""
    assert run("validate", write_defs(tmp_path)) == (0, "", "1 pipeline in 1 file can be used\n")
    write_defs(tmp_path, bank_attributes(read_tasks=0))
    assert run("validate", tmp_path)[2] == "1 mistake in 1 file\n"


def test_a_misspelled_type_is_reported(tmp_path: Path) -> None:
    """It is a mistake next to a valid file, too."""
    (tmp_path / "a").mkdir()
    wrong = write_defs(tmp_path / "a", type_name="cdc_platform.components.spanner.SpanerPipeline")
    write_defs(tmp_path)
    code, output, errors = run("validate", tmp_path)
    assert (code, errors) == (1, "1 mistake in 2 files\n")
    line = len(wrong.read_text(encoding="utf-8").splitlines())
    assert output.startswith(f"{wrong}:{line}: `type` must be ")


def test_a_document_without_settings_has_its_own_line(tmp_path: Path) -> None:
    """Where a document has no line that fits, it is named by its first one."""
    defs = write_defs(tmp_path)
    text = defs.read_text(encoding="utf-8")
    for bad in ("attributes: {}\n", "{}\n", "- a list\n", "# only\nsomething\n", "[]\n"):
        defs.write_text(f"{text}---\n\n{bad}", encoding="utf-8")
        line = (f"{text}---\n\n{bad}").splitlines().index(bad.splitlines()[-1]) + 1
        assert run("validate", defs)[1].startswith(f"{defs}:{line}: `type` must be "), bad


def test_validation_starts_no_lake(tmp_path: Path) -> None:
    """It leaves no other file in the folder."""
    defs = write_defs(tmp_path)
    assert run("validate", defs)[0] == 0
    assert [defs] == list(tmp_path.iterdir())
