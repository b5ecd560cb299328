"""The YAML of a Datastream pipeline: the stream that it names is an asset before all others."""

import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cdc_platform.components.datastream import DatastreamPipeline
from cdc_platform.components.loading import load_declared
from cdc_platform.errors import LibraryMissing, SettingError
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.last_results import load_results
from cdc_platform.model.base.names import STREAM_IS_RUNNING
from cdc_platform_tests.sources.datastream.datastream_server import STREAM, datastream_server
from cdc_platform_tests.yaml_files import write_defs

STREAM_KEY = dg.AssetKey(["shop__cdc", "stream"])
RAW_KEY = dg.AssetKey(["shop__cdc", "raw_change_records"])
LOG_KEY = dg.AssetKey(["shop__cdc", "change_log"])
CHECK_KEY = dg.AssetCheckKey(STREAM_KEY, STREAM_IS_RUNNING)


def load(folder: Path, **source: Any) -> dg.Definitions:
    """Return the definitions of a pipeline of an empty folder."""
    (folder / "files").mkdir(exist_ok=True)
    attributes = {"name": "shop", "source": {"path": "files", **source}, "lake": {"path": "lake"}}
    type_name = f"{DatastreamPipeline.__module__}.{DatastreamPipeline.__name__}"
    path = write_defs(folder, {**attributes, "tables": ["users"]}, type_name)
    return load_declared([path])["shop"].definitions()


def test_a_stream_that_is_named_is_observed_and_checked(tmp_path: Path) -> None:
    """It precedes the source, the sensor requests it in each run, and the run reports the stream's state."""
    with datastream_server() as server:
        server.hold("PAUSED")
        definitions = load(tmp_path, stream=STREAM, datastream_host=server.host)
        dg.Definitions.validate_loadable(definitions)
        graph = definitions.resolve_asset_graph()
        (source_key,) = graph.get(RAW_KEY).parent_keys
        assert graph.get(source_key).parent_keys == {STREAM_KEY}
        with dg.DagsterInstance.ephemeral() as instance:
            run_request = request(definitions, instance)
            assert run_request.asset_selection is not None
            assert run_request.asset_check_keys is not None
            assert (STREAM_KEY in run_request.asset_selection, CHECK_KEY in run_request.asset_check_keys) == (
                True,
                True,
            )
            job = definitions.resolve_job_def("shop_sync")
            part = job.get_subset(asset_selection={STREAM_KEY}, asset_check_selection={CHECK_KEY})
            result = part.execute_in_process(instance=instance)
    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.metadata["State"].value) == (False, "paused")
    (stored,) = load_results(Lake(LakeSettings(str(tmp_path / "lake")), "shop", delivers_events=True))
    assert (stored.name, stored.asset) == (CHECK_KEY.name, STREAM_KEY.to_user_string())
    assert stored.summary == evaluation.description
    assert result.success


def request(definitions: dg.Definitions, instance: dg.DagsterInstance) -> dg.RunRequest:
    """Return the run that the pipeline's sensor asks for."""
    with dg.build_sensor_context(instance=instance, definitions=definitions) as context:
        actual = definitions.resolve_sensor_def("shop_sync_sensor")(context)
    assert isinstance(actual, dg.SensorResult)
    assert actual.run_requests is not None
    (run_request,) = actual.run_requests
    return run_request


def test_without_a_stream_nothing_is_asked(tmp_path: Path) -> None:
    """Anyone who reads files only needs no access to the stream, and no library for it."""
    graph = load(tmp_path).resolve_asset_graph()
    assert STREAM_KEY not in graph.get_all_asset_keys()
    # Files do not state what the tables are, so nothing is compared with the source.
    names = {key.name for key in graph.asset_check_keys}
    assert ("exactly_once" in names, "tables_equal_source" in names) == (True, False)


def test_assets_show_the_columns_that_events_have(tmp_path: Path) -> None:
    """The columns of the raw layer and the log include the fields that only events have."""
    graph = load(tmp_path).resolve_asset_graph()

    schemas = {key.path[-1]: graph.get(key).metadata["dagster/column_schema"] for key in (RAW_KEY, LOG_KEY)}

    names = {asset: {column.name for column in schema.columns} for asset, schema in schemas.items()}
    assert {"event", "mods"} <= names["raw_change_records"]
    assert {"source_timestamp", "keys"} <= names["change_log"]


def test_mistakes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid name, an address without a stream, and a missing library are reported when loading."""
    with pytest.raises(SettingError, match=r"source\.stream.*projects/PROJECT"):
        load(tmp_path, stream="shop")
    with pytest.raises(SettingError, match=r"source\.datastream_host.*without a scheme"):
        load(tmp_path, stream=STREAM, datastream_host="http://localhost:1")
    with pytest.raises(SettingError, match=r"source\.stream.*is missing"):
        load(tmp_path, datastream_host="localhost:1")
    monkeypatch.setitem(sys.modules, "google.cloud.datastream_v1", None)
    with pytest.raises(LibraryMissing, match="pip install"):
        load(tmp_path, stream=STREAM)
