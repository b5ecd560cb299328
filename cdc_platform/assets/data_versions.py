"""Data versions identify the content of assets, so Dagster marks exactly the outdated assets as Unsynced.

Dagster adds the versions of the inputs to a step's own materialisation. A run with further cycles logs the
materialisations of the other assets itself, and adds the versions here.
"""

from dataclasses import dataclass, field
from typing import Final

import dagster as dg
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    DEFAULT_DATA_VERSION,
    NULL_EVENT_POINTER,
    extract_data_version_from_entry,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
)

from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.metadata import Metadata
from cdc_platform.model.base.schemas import FORMAT_VERSION
from cdc_platform.pipeline.merging.build import MergeOutcome
from cdc_platform.pipeline.opened.pipeline import Pipeline

FOLLOWED: Final = dg.DataVersion(f"format {FORMAT_VERSION}")
"""Version of assets that grow with every cycle; the same cycle updates all assets downstream of them."""


def cut_version(cut: Cut | None) -> dg.DataVersion:
    """Return the version of a cut's content."""
    return dg.DataVersion(f"cut {cut.cut if cut is not None else 0}")


def table_version(pipeline: Pipeline, merge: MergeOutcome) -> dg.DataVersion:
    """Return the version of a table: the newest cycle that changed a row of it."""
    table = pipeline.lake.table(merge.table)
    is_changed = merge.snapshot_id is not None or table is None
    return dg.DataVersion(f"cycle {merge.cycle if is_changed or table is None else read_mark(table).cycle}")


@dataclass(frozen=True)
class DataVersions:
    """Newest versions of a pipeline's assets, for the materialisations that a run logs itself."""

    assets: PipelineAssets
    instance: dg.DagsterInstance
    _newest: dict[dg.AssetKey, str] = field(default_factory=dict)

    def materialise(
        self,
        key: dg.AssetKey,
        metadata: Metadata,
        version: dg.DataVersion = FOLLOWED,
        partition: str | None = None,
    ) -> dg.AssetMaterialization:
        """Return the materialisation of an asset from the newest versions of its inputs."""
        self._newest[key] = version.value
        tags = {
            CODE_VERSION_TAG: FOLLOWED.value,
            DATA_VERSION_TAG: version.value,
            DATA_VERSION_IS_USER_PROVIDED_TAG: "true",
        }
        for input_key in self.assets.inputs(key):
            tags[get_input_data_version_tag(input_key)] = self._find(input_key)
            tags[get_input_event_pointer_tag(input_key)] = NULL_EVENT_POINTER
        return dg.AssetMaterialization(key, metadata=metadata, partition=partition, tags=tags)

    def _find(self, key: dg.AssetKey) -> str:
        """Return the newest version of an asset, possibly from an earlier step or run."""
        if key not in self._newest:
            is_external = key == self.assets.source
            record = self.instance.get_latest_data_version_record(key, is_source=is_external)
            version = extract_data_version_from_entry(record.event_log_entry) if record is not None else None
            self._newest[key] = (version or DEFAULT_DATA_VERSION).value
        return self._newest[key]
