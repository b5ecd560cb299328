"""Assets and checks of a pipeline's source besides the raw records."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import dagster as dg

from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.metadata import link_status_page


@dataclass(frozen=True)
class Upstream:
    """Assets upstream of the raw layer, in each run of the pipeline; they and their checks block no asset.

    ``resources`` are the resources of the assets and checks, by key; ``kinds`` are those of the source.
    """

    assets: tuple[dg.AssetsDefinition, ...] = ()
    checks: tuple[dg.AssetChecksDefinition, ...] = ()
    resources: Mapping[str, dg.ResourceDefinition] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset()

    @property
    def keys(self) -> tuple[dg.AssetKey, ...]:
        """Keys of the assets."""
        return tuple(key for asset in self.assets for key in asset.keys)

    @property
    def check_keys(self) -> tuple[dg.AssetCheckKey, ...]:
        """Keys of the checks."""
        return tuple(key for check in self.checks for key in check.check_keys)


NO_UPSTREAM = Upstream()
"""The upstream of a source that shows nothing except its changes."""


def build_source(assets: PipelineAssets, title: str, kinds: Collection[str]) -> dg.AssetSpec:
    """Return the asset that represents a pipeline's source; each run that reads it logs a materialisation.

    Args:
        assets: the names of the pipeline's assets.
        title: name of the source in messages.
        kinds: Dagster's kinds of the source.
    """
    return dg.AssetSpec(
        assets.source,
        deps=assets.inputs(assets.source),
        group_name=assets.group(assets.source),
        kinds={"source", *kinds},
        owners=list(assets.owners),
        metadata=link_status_page(assets.pipeline),
        description=f"The source of the pipeline `{assets.pipeline}`: {title}.",
    )


def file_kind(path: str) -> str:
    """Return Dagster's kind for the location of files."""
    return {"gs": "gcs", "s3": "s3"}.get(path.partition("://")[0], "file")
