"""Dagster's own loading of a project evaluates no more of a pipeline's file than the command line does."""

import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pytest
import yaml

from cdc_platform import definitions
from cdc_platform.components.loading import COMPONENTS, load_settings
from cdc_platform.components.places import PLACE_VARIABLE
from cdc_platform.errors import SettingError
from cdc_platform_tests.yaml_files import TYPE, bank_attributes

CODE: Final = "{{ cycler.__init__.__globals__.os.popen('touch SPOT').read() }}"
NUMBERS: Final = itertools.count()
MODULE: Final = """
import pathlib
import dagster as dg
pathlib.Path("SPOT").touch()

@dg.template_var
def spot() -> str:
    return "spot"
"""


class Project:
    """A project of dg with one folder, whose file declares a bank."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        package = f"project_{next(NUMBERS)}"
        self.root, self.folder, self.spot = root, root / package / "defs" / "bank", root / "spot"
        self.folder.mkdir(parents=True)
        self.file = self.folder / "defs.yaml"
        for folder in (root / package, self.folder.parent):
            (folder / "__init__.py").touch()
        (root / "pyproject.toml").write_text(
            f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{package}"\n'
        )
        monkeypatch.syspath_prepend(str(root))

    def write(self, *documents: dict[str, Any]) -> None:
        """Write documents, in whose texts SPOT is the file that code would touch."""
        text = yaml.safe_dump_all(documents, sort_keys=False)
        self.file.write_text(text.replace("SPOT", str(self.spot)), encoding="utf-8")

    def load(self) -> dg.Definitions:
        """Load as `dagster dev` and `dg check defs` do."""
        return dg.load_from_defs_folder(path_within_project=self.root)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project without documents."""
    return Project(tmp_path, monkeypatch)


def bank(**more: Any) -> dict[str, Any]:
    """Return a document that declares a bank."""
    return {"type": TYPE, "attributes": bank_attributes(), **more}


def described(text: object) -> dict[str, Any]:
    """Return the same, whose assets are described by a text."""
    return bank(post_processing={"assets": [{"target": "*", "attributes": {"description": text}}]})


def cause_of(error: BaseException | None) -> SettingError:
    """Return our error, which Dagster raises its own from."""
    while not isinstance(error, SettingError):
        assert error is not None
        error = error.__cause__
    return error


@pytest.mark.parametrize(
    ("document", "setting"),
    [
        (described(CODE), "post_processing.assets.0.attributes.description"),
        (described({"a": [CODE]}), "post_processing.assets.0.attributes.description.a.0"),
        (bank(requirements={"env": [CODE]}), "requirements.env.0"),
        (bank(attributes=bank_attributes(name=CODE)), "name"),
        (bank(template_vars_module=".variables"), "template_vars_module"),
        (bank(template_vars_module=CODE), "template_vars_module"),
    ],
)
def test_no_part_of_a_document_runs_code(project: Project, document: dict[str, Any], setting: str) -> None:
    """Dagster and the command line refuse code by the name of its setting, before anything is evaluated."""
    project.write(document)
    (project.folder / "variables.py").write_text(MODULE.replace("SPOT", str(project.spot)))
    with pytest.raises(Exception, match="Error while loading") as caught:
        project.load()
    cause = cause_of(caught.value)
    assert cause.setting == f"{project.file}: {setting}"
    with pytest.raises(SettingError) as refused:
        load_settings(project.file)
    assert refused.value.setting == cause.setting
    assert not project.spot.exists()


def test_bytes_hide_no_code(project: Project) -> None:
    """A text in base64, which Dagster would turn into a text and fill in, is refused."""
    project.write(described(CODE.replace("SPOT", str(project.spot)).encode()))
    with pytest.raises(Exception, match="Error while loading") as caught:
        project.load()
    assert "`!!binary`" in str(cause_of(caught.value))
    assert not project.spot.exists()


@pytest.mark.parametrize("component", COMPONENTS.values())
def test_every_kind_of_pipeline_is_asked(component: type[Any]) -> None:
    """Dagster finds the check among the members of each class, and of a class that a project derives."""

    class Derived(component):  # type: ignore[misc]  # the class is a parameter
        """A pipeline of a project."""

    assert "has_safe_document" in vars(component)
    assert "has_safe_document" in vars(Derived)


def test_the_document_of_several_is_named(project: Project) -> None:
    """Of several documents the one that is refused is named."""
    project.write(bank(), {**described(CODE), "attributes": bank_attributes(name="shop")})
    with pytest.raises(Exception, match="Error while loading") as caught:
        project.load()
    assert f"{project.file} (document 2): post_processing" in str(cause_of(caught.value))
    assert not project.spot.exists()


def test_post_processing_with_variables_applies(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster fills in environment variables; the command line reads the same file."""
    monkeypatch.setenv("BANK_TEXT", "All of the bank")
    project.write(described("{{ env.BANK_TEXT }}"))
    graph = project.load().resolve_asset_graph()
    assert {graph.get(key).description for key in graph.get_all_asset_keys()} == {"All of the bank"}
    assert load_settings(project.file).name == "bank"


def test_post_processing_is_not_silently_ignored(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code location that is not a project of dg refuses what it does not apply."""
    project.write(described("a text"))
    monkeypatch.setenv(PLACE_VARIABLE, str(project.file))
    with pytest.raises(SettingError, match="post_processing` would be ignored"):
        definitions.defs()


@pytest.mark.parametrize("name", ["defs.yml", "component.yaml"])
def test_other_names_of_the_file_are_checked(project: Project, name: str) -> None:
    """Every name that Dagster takes for a component's file is looked at."""
    project.write(described(CODE))
    project.file = project.file.rename(project.folder / name)
    with pytest.raises(Exception, match="Error while loading") as caught:
        project.load()
    assert str(project.file) in str(cause_of(caught.value))
    assert not project.spot.exists()


@pytest.mark.parametrize("place", ["name", "tables", "lake", "catalog", "options", "read_tasks", "source"])
def test_the_value_of_a_variable_is_no_template(
    project: Project, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A variable is filled in once: a template in its value stays text, or is an invalid value."""
    monkeypatch.setenv("BANK_TEXT", CODE.replace("SPOT", str(project.spot)))
    text: Any = "{{ env.BANK_TEXT }}"
    attributes = bank_attributes()
    attributes |= {
        "name": {"name": text},
        "tables": {"tables": [text]},
        "lake": {"lake": {"path": text}},
        "catalog": {"lake": {"path": "lake", "catalog": {"type": "sql", "uri": text}}},
        "options": {"table_options": {"t": {"history": text}}},
        "read_tasks": {"read_tasks": text},
        "source": {"source": text},
    }[place]
    project.write(bank(attributes=attributes))
    with suppress(SettingError):
        load_settings(project.file)
    assert not project.spot.exists()
