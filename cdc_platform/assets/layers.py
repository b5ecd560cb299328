"""Keys, groups and owners of the assets of all layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import dagster as dg
import pyarrow as pa

from cdc_platform.lake.catalog.lake import COPIED, LINEAGE, LOG, RAW, own_tables
from cdc_platform.metadata import TABLE_NAME
from cdc_platform.model.base.names import lake_table_name
from cdc_platform.model.schema.table_options import history_name
from cdc_platform.model.stream.source_capabilities import CHANGE_STREAM, SourceCapabilities

CUT_ASSET = "cut"
MAINTENANCE_ASSET = "maintenance"


class AssetArguments(TypedDict):
    """Arguments that every asset of a pipeline gives to Dagster's decorator."""

    key: dg.AssetKey
    group_name: str
    kinds: set[str]
    owners: Sequence[str]
    metadata: Mapping[str, Any]
    required_resource_keys: set[str]


@dataclass(frozen=True)
class PipelineAssets:
    """The names that the assets of one pipeline have; they are those of the lake."""

    pipeline: str
    tables: tuple[str, ...]
    owners: tuple[str, ...] = ()
    copies_first: bool = False
    histories: tuple[str, ...] = ()
    """Source tables that keep a history."""
    capabilities: SourceCapabilities = CHANGE_STREAM
    """Guarantees of the source."""
    upstream: tuple[dg.AssetKey, ...] = ()
    """Assets of the source itself, before the raw layer."""
    fail_on_quarantine: bool = False
    """Whether records in quarantine fail a check instead of only causing a warning."""

    @property
    def run_key(self) -> str:
        """Resource key under which the assets find what they share in a run."""
        return f"{self.pipeline}__run"

    @property
    def raw(self) -> dg.AssetKey:
        """Key of the raw change records."""
        return self._system(RAW)

    @property
    def lineage(self) -> dg.AssetKey:
        """Key of the partition lineage."""
        return self._system(LINEAGE)

    @property
    def log(self) -> dg.AssetKey:
        """Key of the change log."""
        return self._system(LOG)

    @property
    def copies(self) -> dg.AssetKey:
        """Key of the initial copies."""
        return self._system(COPIED)

    def own_schema(self, key: dg.AssetKey) -> pa.Schema:
        """Return the columns of one of the platform's own tables."""
        return own_tables(hands_out_events=self.capabilities.hands_out_events)[key.path[-1]]

    @property
    def before_tables(self) -> list[dg.AssetKey]:
        """Keys of what a table is made of."""
        return [self.log, *([self.copies] if self.copies_first else [])]

    @property
    def cut(self) -> dg.AssetKey:
        """Key of the published cut."""
        return self._system(CUT_ASSET)

    @property
    def maintenance(self) -> dg.AssetKey:
        """Key of the lake's maintenance."""
        return self._system(MAINTENANCE_ASSET)

    def table(self, source_table: str) -> dg.AssetKey:
        """Return the key of one table, or of a history by its own name."""
        return dg.AssetKey([self.pipeline, lake_table_name(source_table)])

    @property
    def all_tables(self) -> list[dg.AssetKey]:
        """Keys of all tables and histories."""
        return [self.table(name) for name in (*self.tables, *map(history_name, self.histories))]

    @property
    def all_keys(self) -> list[dg.AssetKey]:
        """Keys of all assets, from the source to the readers."""
        return [
            *self.upstream,
            self.raw,
            self.lineage,
            *self.before_tables,
            *self.all_tables,
            self.cut,
            self.maintenance,
        ]

    def _system(self, name: str) -> dg.AssetKey:
        return dg.AssetKey([f"{self.pipeline}__cdc", name])

    def arguments(self, key: dg.AssetKey, layer: str, kinds: set[str], **metadata: object) -> AssetArguments:
        """Return what every asset says of itself; an entry of its metadata that is None is left out."""
        named = {TABLE_NAME: ".".join(["lake", *key.path]), **metadata}
        return {
            "key": key,
            "group_name": f"{self.pipeline}_{layer}",
            "kinds": kinds,
            "owners": list(self.owners),
            "metadata": {name: value for name, value in named.items() if value is not None},
            "required_resource_keys": {self.run_key},
        }
