"""Assets and checks of a pipeline's source, apart from what it reads of it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import dagster as dg

from cdc_platform.assets.layers import PipelineAssets


@dataclass(frozen=True)
class Upstream:
    """Assets that stand before the raw layer, in each run of the pipeline; they and their checks block none.

    ``resources`` are what the assets and checks need, by resource key; ``kinds`` are those of the source.
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
"""Of a source that has nothing to show but its changes."""


def build_source(assets: PipelineAssets, title: str, kinds: Collection[str]) -> dg.AssetSpec:
    """Return the asset that stands for what a pipeline reads; each run that reads it logs that it has.

    Args:
        assets: the names of the pipeline's assets.
        title: name of the source as messages say it.
        kinds: what it is, in Dagster's words.
    """
    return dg.AssetSpec(
        assets.source,
        deps=assets.inputs(assets.source),
        group_name=assets.group(assets.source),
        kinds={"source", *kinds},
        owners=list(assets.owners),
        description=f"What the pipeline `{assets.pipeline}` reads: {title}.",
    )


def file_kind(path: str) -> str:
    """Return where files lie, in Dagster's words."""
    return {"gs": "gcs", "s3": "s3"}.get(path.partition("://")[0], "file")
