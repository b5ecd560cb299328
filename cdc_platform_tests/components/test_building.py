"""The tables and histories that are assets."""

from pathlib import Path

import dagster as dg
import pytest

from cdc_platform.claims import FULL_CHECKS_TAG
from cdc_platform.components.building import find_histories
from cdc_platform.components.loading import load_declared
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform_tests.yaml_files import bank_attributes, write_defs


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        (("t", "u"), ("t",)),
        (("T__history", "t", "u"), ()),  # the lake has a table there
        (("u",), ()),
    ],
)
def test_a_history_is_an_asset_unless_a_table_has_its_place(
    tmp_path: Path, tables: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    """An asset that no step fills would fail every run."""
    options = {"t": TableOptions(history=True), "u": TableOptions(soft_delete=True)}
    settings = PipelineSettings(
        "shop",
        DatastreamSettings(str(tmp_path / "files")),
        LakeSettings(str(tmp_path)),
        table_options=options,
    )
    assert expected == find_histories(settings, tables)


def test_a_file_may_have_a_schedule_instead_of_sensors(tmp_path: Path) -> None:
    """`runs` of the YAML makes Dagster's schedule, which is on, and leaves the sensors off."""
    runs = {"schedule": "0 6 * * *", "sensor": False, "keep_runs_s": None}
    defs = load_declared([write_defs(tmp_path, bank_attributes(runs=runs))])["bank"].definitions()
    schedule = defs.resolve_schedule_def("bank_sync_schedule")
    assert (schedule.cron_schedule, schedule.job_name) == ("0 6 * * *", "bank_sync")
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
    statuses = {
        sensor.name: defs.resolve_sensor_def(sensor.name).default_status for sensor in defs.sensors or []
    }
    assert set(statuses.values()) == {dg.DefaultSensorStatus.STOPPED}
    request = schedule(dg.build_schedule_context())
    assert isinstance(request, dg.RunRequest)
    # A check that is a step of a run has no last result while the run goes on.
    assert (request.asset_check_keys, request.tags[FULL_CHECKS_TAG]) == ([], "true")
    job = defs.resolve_job_def("bank_sync")
    assert {*(request.asset_selection or ())} == {*job.asset_layer.selected_asset_keys}
