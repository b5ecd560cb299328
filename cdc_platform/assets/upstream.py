"""Assets and checks of a pipeline's source, apart from what it reads of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import dagster as dg


@dataclass(frozen=True)
class Upstream:
    """Assets that stand before the raw layer, in each run of the pipeline; they and their checks block none.

    ``resources`` are what the assets and checks need, by resource key.
    """

    assets: tuple[dg.AssetsDefinition, ...] = ()
    checks: tuple[dg.AssetChecksDefinition, ...] = ()
    resources: Mapping[str, dg.ResourceDefinition] = field(default_factory=dict)

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
