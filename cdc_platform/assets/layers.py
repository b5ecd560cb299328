"""Keys, groups and owners of the assets of all layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict

import dagster as dg

from cdc_platform.assets.table_columns import own_schema
from cdc_platform.lake.catalog.lake import own_tables
from cdc_platform.metadata import COLUMN_SCHEMA, TABLE_NAME, link_status_page
from cdc_platform.model.base.names import PLATFORM_GROUP, lake_table_name
from cdc_platform.model.base.stored_names import COPIES, LINEAGE, LOG, RAW
from cdc_platform.model.schema.table_options import history_name
from cdc_platform.model.stream.source_capabilities import CHANGE_STREAM, SourceCapabilities

CUT_ASSET: Final = "cut"
MAINTENANCE_ASSET: Final = "maintenance"
SOURCE_ASSET: Final = "source"


class AssetArguments(TypedDict):
    """Arguments of Dagster's decorator that all assets of a pipeline share."""

    key: dg.AssetKey
    deps: Sequence[dg.AssetKey]
    group_name: str
    kinds: set[str]
    owners: Sequence[str]
    metadata: Mapping[str, Any]
    required_resource_keys: set[str]


@dataclass(frozen=True)
class PipelineAssets:
    """Names of the assets of one pipeline, which are those of the lake."""

    pipeline: str
    tables: tuple[str, ...]
    owners: tuple[str, ...] = ()
    copies_first: bool = False
    histories: tuple[str, ...] = ()
    """Source tables that keep a history."""
    capabilities: SourceCapabilities = CHANGE_STREAM
    """Guarantees of the source."""
    upstream: tuple[dg.AssetKey, ...] = ()
    """Assets before the source."""
    fail_on_quarantine: bool = False
    """Whether records in quarantine fail a check instead of only causing a warning."""

    @property
    def run_key(self) -> str:
        """Resource key of the objects that the assets share in a run."""
        return f"{self.pipeline}__run"

    @property
    def source(self) -> dg.AssetKey:
        """Key of the source."""
        return self._system(SOURCE_ASSET)

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
        return self._system(COPIES)

    def inputs(self, key: dg.AssetKey) -> list[dg.AssetKey]:
        """Return the keys of the inputs of an asset."""
        before_tables = [self.log, *([self.copies] if self.copies_first else [])]
        return {
            self.source: list(self.upstream),
            self.raw: [self.source],
            self.lineage: [self.raw],
            self.log: [self.raw, self.lineage],
            self.copies: [self.source],
            self.cut: [self.log, *self.all_tables],
            self.maintenance: [self.cut],
        }.get(key, before_tables)

    @property
    def cut(self) -> dg.AssetKey:
        """Key of the published cut."""
        return self._system(CUT_ASSET)

    @property
    def maintenance(self) -> dg.AssetKey:
        """Key of the lake's maintenance."""
        return self._system(MAINTENANCE_ASSET)

    def group(self, key: dg.AssetKey) -> str:
        """Return the group of an asset: the pipeline's tables, or the platform's own assets."""
        return self.pipeline if key.path[0] == self.pipeline else f"{self.pipeline}/{PLATFORM_GROUP}"

    def table(self, source_table: str) -> dg.AssetKey:
        """Return the key of one table, or of a history by its own name."""
        return dg.AssetKey([self.pipeline, lake_table_name(source_table)])

    @property
    def all_tables(self) -> list[dg.AssetKey]:
        """Keys of all tables and histories."""
        return [self.table(name) for name in (*self.tables, *map(history_name, self.histories))]

    @property
    def all_keys(self) -> list[dg.AssetKey]:
        """Keys of all assets that a run materialises, from the source to the readers."""
        return [
            *self.upstream,
            self.raw,
            self.lineage,
            self.log,
            *([self.copies] if self.copies_first else []),
            *self.all_tables,
            self.cut,
            self.maintenance,
        ]

    def _system(self, name: str) -> dg.AssetKey:
        return dg.AssetKey([f"{self.pipeline}__cdc", name])

    def _own_columns(self, key: dg.AssetKey) -> Mapping[str, dg.TableSchema]:
        """Return the metadata with the columns of a system table's asset; empty for other assets."""
        name = key.path[-1]
        schema = own_tables(delivers_events=self.capabilities.delivers_events).get(name)
        return {COLUMN_SCHEMA: own_schema(name, schema)} if schema and key == self._system(name) else {}

    def arguments(self, key: dg.AssetKey, kinds: set[str], **metadata: object) -> AssetArguments:
        """Return the common arguments of an asset, without metadata entries that are None."""
        entries = {
            TABLE_NAME: ".".join(["lake", *key.path]),
            **link_status_page(self.pipeline),
            **self._own_columns(key),
            **metadata,
        }
        return {
            "key": key,
            "deps": self.inputs(key),
            "group_name": self.group(key),
            "kinds": kinds,
            "owners": list(self.owners),
            "metadata": {name: value for name, value in entries.items() if value is not None},
            "required_resource_keys": {self.run_key},
        }
