"""The code location: what it holds is compared with a golden file, always."""

import json
import os
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cdc_platform import definitions
from cdc_platform.assets.check_results import check_key, describe_check_result
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.components.loading import load_declared, load_settings
from cdc_platform.components.places import PLACE_VARIABLE
from cdc_platform.errors import SettingError
from cdc_platform.lake.catalog.column_comments import COLUMN_COMMENTS
from cdc_platform.lake.commits.commits import Mark
from cdc_platform.lake.state.schema_history import append_events, load_history
from cdc_platform.metadata import COLUMN_SCHEMA
from cdc_platform.model.schema.schema_events import SchemaChange, SchemaEvent
from cdc_platform.pipeline.checks.check_result import CheckResult
from cdc_platform.pipeline.checks.invariants import CHECKS, QUARANTINE_EMPTY, checks_of
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform_tests.yaml_files import bank_attributes, write_defs, write_two

ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).parent / "golden" / "definitions.json"
UPDATE_VARIABLE = "UPDATE_GOLDEN"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> dg.Definitions:
    """The definitions of the repository's example."""
    monkeypatch.setenv(PLACE_VARIABLE, str(ROOT / "examples"))
    return definitions.defs()


def outline(defs: dg.Definitions) -> dict[str, Any]:
    """Return everything of the definitions that users see or rely on."""
    graph = defs.resolve_asset_graph()
    checks = {key: graph.get_check_spec(key) for key in graph.asset_check_keys}
    assets = {
        key.to_user_string(): {
            "deps": sorted(parent.to_user_string() for parent in graph.get(key).parent_keys),
            "group": graph.get(key).group_name,
            "kinds": sorted(graph.get(key).kinds),
            "owners": sorted(graph.get(key).owners),
            "partitions": getattr(graph.get(key).partitions_def, "name", None),
            "metadata": sorted(graph.get(key).metadata),
            "checks": sorted(
                f"{check.name}{' blocking' if check.blocking else ''}"
                for check in checks.values()
                if check.asset_key == key
            ),
        }
        for key in sorted(graph.get_all_asset_keys())
    }
    sensors = [defs.resolve_sensor_def(sensor.name) for sensor in defs.sensors or []]
    return {
        "assets": assets,
        "jobs": sorted(job.name for job in defs.jobs or []),
        "sensors": {
            sensor.name: [sensor.default_status.value, sensor.minimum_interval_seconds] for sensor in sensors
        },
        "resources": sorted(defs.resources or {}),
    }


def test_the_asset_graph_is_the_golden_one(example: dg.Definitions) -> None:
    """Assets, dependencies, groups, kinds, owners, checks, job and sensor change only on purpose.

    `UPDATE_GOLDEN=1 pytest cdc_platform_tests/test_definitions.py` takes over a change.
    """
    actual = outline(example)
    if os.environ.get(UPDATE_VARIABLE):
        GOLDEN.write_text(json.dumps(actual, indent=2) + "\n", encoding="utf-8")
    assert json.loads(GOLDEN.read_text(encoding="utf-8")) == actual


def test_the_example_is_loadable(example: dg.Definitions) -> None:
    """Dagster accepts the definitions as a code location, without reaching the source."""
    dg.Definitions.validate_loadable(example)


def test_every_asset_and_check_explains_itself(example: dg.Definitions) -> None:
    """The UI shows no asset and no check without a description."""
    graph = example.resolve_asset_graph()
    bare = [key.to_user_string() for key in graph.get_all_asset_keys() if not graph.get(key).description]
    bare += [str(key) for key in graph.asset_check_keys if not graph.get_check_spec(key).description]
    assert bare == []


def test_every_column_of_the_platform_explains_itself(example: dg.Definitions) -> None:
    """The UI describes each column of the platform's own tables, of both kinds of source."""
    graph = example.resolve_asset_graph()
    schemas = {
        key.to_user_string(): graph.get(key).metadata[COLUMN_SCHEMA]
        for key in graph.get_all_asset_keys()
        if COLUMN_SCHEMA in graph.get(key).metadata
    }
    assert len({name.split("/")[1] for name in schemas}) == len(COLUMN_COMMENTS)
    columns = [(name, column) for name, schema in schemas.items() for column in schema.columns]
    assert [(name, column.name) for name, column in columns if not column.description] == []
    # The fields of a struct would push the descriptions out of the window.
    assert {column.type for _, column in columns if "struct" in column.type} == {"struct", "array<struct>"}


def test_every_check_but_a_warning_is_blocking(example: dg.Definitions) -> None:
    """A failing check fails the run, so that CI sees it and nothing downstream is made.

    Those of single tables block nothing: the same check of all tables does.
    """
    graph = example.resolve_asset_graph()
    specs = [
        graph.get_check_spec(key) for key in graph.asset_check_keys if key.asset_key.path[0][-5:] == "__cdc"
    ]
    warning = {spec.name for spec in specs if not spec.blocking}
    assert {check.name for check in CHECKS if check.is_warning} == warning
    assert QUARANTINE_EMPTY in warning


@pytest.mark.parametrize(
    ("settings", "severity"),
    [({}, dg.AssetCheckSeverity.WARN), ({"fail_on_quarantine": True}, dg.AssetCheckSeverity.ERROR)],
    ids=["by default", "fail_on_quarantine"],
)
def test_quarantine_warns_or_fails_and_never_blocks(
    tmp_path: Path, settings: dict[str, bool], severity: dg.AssetCheckSeverity
) -> None:
    """The setting makes the warning an error; the rest of the pipeline is published either way."""
    path = write_defs(tmp_path, bank_attributes(**settings))
    loaded = load_settings(path)
    checks = checks_of(loaded.capabilities, fail_on_quarantine=loaded.fail_on_quarantine)
    check = next(check for check in checks if check.name == QUARANTINE_EMPTY)
    key = check_key(PipelineAssets("bank", ()), check)
    actual = describe_check_result(
        key, check, CheckResult(False, "one is in quarantine", {}), 1, blocking=check.is_blocking
    )
    assert (severity, False) == (actual.severity, actual.blocking)
    (declared,) = load_declared([path]).values()
    graph = declared.definitions().resolve_asset_graph()
    (key,) = (key for key in graph.asset_check_keys if key.name == QUARANTINE_EMPTY)
    assert not graph.get_check_spec(key).blocking


def test_two_pipelines_live_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelines of one folder share nothing, neither assets nor resources nor partitions."""
    for name in ("bank", "shop"):
        (tmp_path / name).mkdir()
        write_defs(tmp_path / name, bank_attributes(name=name))
    monkeypatch.setenv(PLACE_VARIABLE, str(tmp_path))
    actual = outline(definitions.defs())
    names = [asset["partitions"] for asset in actual["assets"].values() if asset["partitions"]]
    assert sorted(names) == ["bank/change_stream_partitions", "shop/change_stream_partitions"]
    assert actual["resources"] == ["bank__run", "shop__run"]


def test_without_named_tables_a_silent_source_leaves_those_of_the_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A code location loads although its source is down; the tables that the lake has are there."""
    monkeypatch.setenv(PLACE_VARIABLE, str(write_defs(tmp_path, bank_attributes(tables=None))))
    actual = outline(definitions.defs())
    assert {
        f"bank__cdc/{name}" for name in ("raw_change_records", "partition_lineage", "change_log", "cut")
    } < set(actual["assets"])
    assert not (tmp_path / "lake").exists()


def test_a_run_finds_tables_that_no_cycle_has_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process may load the definitions while the source is down, and needs the assets that it runs."""
    defs = write_defs(tmp_path, bank_attributes(tables=None))
    lake = open_pipeline(load_settings(defs)).lake
    added = SchemaEvent(1, SchemaChange.TABLE_ADDED, "orders")
    key = SchemaEvent(
        1, SchemaChange.COLUMN_ADDED, "orders", "id", '{"code": "INT64"}', is_primary_key=True, ordinal=1
    )
    append_events(lake, load_history(lake), Mark(1, 1, 0), [added, key])
    monkeypatch.setenv(PLACE_VARIABLE, str(defs))
    assert "bank/orders" in outline(definitions.defs())["assets"]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_lake_that_cannot_be_read_does_not_keep_other_pipelines_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_damaged: bool
) -> None:
    """A code location loads although a lake's catalog does not answer, or is damaged; the log says why."""
    lake: dict[str, Any] = {"path": "lake"}
    if is_damaged:
        (tmp_path / "lake").mkdir()
        (tmp_path / "lake" / "catalog.db").write_text("no database " * 100)
    else:
        lake["catalog"] = {"type": "rest", "uri": "http://127.0.0.1:1"}
    write_two(tmp_path, bank_attributes(name="shop", tables=None, lake=lake))
    monkeypatch.setenv(PLACE_VARIABLE, str(tmp_path))
    actual = outline(definitions.defs())
    assert {"bank/accounts", "bank__cdc/cut", "shop__cdc/cut"} < set(actual["assets"])
    assert "Pipeline shop: not all its tables can be listed" in caplog.text


def test_the_place_is_configured_or_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment wins, then the demo's pipeline where there is one, then the examples."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(PLACE_VARIABLE, raising=False)
    assert definitions.find_places() == (ROOT / "examples",)
    definitions.DEMO.parent.mkdir()
    definitions.DEMO.touch()
    assert definitions.find_places() == (definitions.DEMO, ROOT / "examples")
    monkeypatch.setenv(PLACE_VARIABLE, "elsewhere")
    assert (Path("elsewhere"),) == definitions.find_places()
    with pytest.raises(SettingError, match=r"no folder with one named defs\.yaml or defs\.yml: elsewhere"):
        definitions.defs()


def test_the_demo_is_defined_with_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pipeline takes the place of an example of the same name; two files of one place cannot do that."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(PLACE_VARIABLE, raising=False)
    monkeypatch.setattr(definitions, "EXAMPLES", tmp_path / "examples")
    places = (
        (".cdc_platform", "bank", "demos"),
        ("examples/bank", "bank", "hidden"),
        ("examples/mine", "mine", "own"),
    )
    for folder, name, table in places:
        (tmp_path / folder).mkdir(parents=True)
        write_defs(tmp_path / folder, bank_attributes(name=name, tables=[table]))
    assets = set(outline(definitions.defs())["assets"])
    assert {"bank/demos", "mine/own"} == assets & {"bank/demos", "bank/hidden", "mine/own"}
    (tmp_path / "examples" / "again").mkdir()
    write_defs(tmp_path / "examples" / "again", bank_attributes(name="mine"))
    with pytest.raises(SettingError, match=r"is already used by .*again.*; choose another: mine"):
        definitions.defs()
