"""The tables and histories that are assets."""

from pathlib import Path

import pytest

from cdc_platform.components.building import find_histories
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings


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
        "shop", DatastreamSettings(str(tmp_path)), LakeSettings(str(tmp_path)), table_options=options
    )
    assert expected == find_histories(settings, tables)
