"""The tables of one pipeline in the lake, accessed without Spark."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table

from cdc_platform.errors import CommitConflict, LakeDamaged, LakeFormatUnknown, PipelineNotFound, SettingError
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.lake.catalog.catalogs import open_catalog
from cdc_platform.lake.catalog.column_properties import plain_columns
from cdc_platform.lake.catalog.damage import drop_results, load_stored, require_own
from cdc_platform.lake.catalog.lake_settings import (
    CATALOG,
    COMPARE_AND_SET,
    FORMAT_PROPERTY,
    KEPT_BY_TIME,
    LakeSettings,
    local_folder,
)
from cdc_platform.lake.catalog.retries import commit_again
from cdc_platform.lake.catalog.sql_catalog import LakeSqlCatalog
from cdc_platform.lake.catalog.table_uuids import KEEPERS, require_keepers, require_uuids, store_uuids
from cdc_platform.model.base.cached_values import cached_value
from cdc_platform.model.base.names import lake_table_name, quote_spark
from cdc_platform.model.base.schemas import (
    CHANGE_LOG,
    CHECK_RESULT_ROWS,
    COPY_ROWS,
    CUTS,
    DELETION_MARKER_ROWS,
    EVENT_LOG,
    FORMAT_VERSION,
    PARTITION_LINEAGE,
    QUARANTINE_ROWS,
    RAW_CHANGE_RECORDS,
    RAW_EVENT_RECORDS,
    READ_PROGRESS_ROWS,
    SCHEMA_CHANGES,
)
from cdc_platform.model.base.stored_names import (
    CHECK_RESULTS,
    COPIES,
    CUT,
    DELETION_MARKERS,
    LINEAGE,
    LOG,
    QUARANTINE,
    RAW,
    READ_PROGRESS,
    SCHEMA,
)

ORIGINAL_TABLES: Final = (RAW, LINEAGE, LOG, CUT, QUARANTINE)  # the oldest lakes lack the others

SYSTEM_TABLES: Final[Mapping[str, pa.Schema]] = {
    RAW: RAW_CHANGE_RECORDS,
    LINEAGE: PARTITION_LINEAGE,
    LOG: CHANGE_LOG,
    CUT: CUTS,
    QUARANTINE: QUARANTINE_ROWS,
    SCHEMA: SCHEMA_CHANGES,
    COPIES: COPY_ROWS,
    CHECK_RESULTS: CHECK_RESULT_ROWS,
}

EVENT_TABLES: Final[Mapping[str, pa.Schema]] = {
    **SYSTEM_TABLES,
    RAW: RAW_EVENT_RECORDS,
    LOG: EVENT_LOG,
    READ_PROGRESS: READ_PROGRESS_ROWS,
    DELETION_MARKERS: DELETION_MARKER_ROWS,
}
"""The same for an event source."""


def own_tables(*, delivers_events: bool) -> Mapping[str, pa.Schema]:
    """Return the columns of the platform's own tables by name, for an event source or a change stream."""
    return EVENT_TABLES if delivers_events else SYSTEM_TABLES


SMALL_COMMITS: Final = {
    # Otherwise the metadata files of all commits would stay forever.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
    # Every cycle writes few rows: spreading them over tasks would only create more files.
    "write.distribution-mode": "none",
    # The default of 16 MB per task is more than a cycle of half a million changes has: it would be one task.
    "read.split.target-size": str(2 * 1024 * 1024),
    "read.split.open-file-cost": str(64 * 1024),
}

UNMAINTAINED: Final = (SCHEMA, COPIES, CHECK_RESULTS)
"""Own tables that few cycles write, or whose writers expire snapshots."""


@dataclass(frozen=True)
class Lake:
    """The two namespaces of a pipeline: `PIPELINE` with its tables, `PIPELINE__cdc` with the platform's."""

    settings: LakeSettings
    pipeline: str
    is_reader: bool = False
    """Whether creating anything is forbidden."""
    delivers_events: bool = False
    """Whether the source is an event source, for which more is stored."""

    @property
    def system_namespace(self) -> str:
        """Namespace of the platform's own tables."""
        return f"{self.pipeline}__cdc"

    @cached_value
    def catalog(self) -> Catalog:
        """The catalog, with both namespaces and the platform's own tables in it.

        Raises:
            SettingError: the lake's folder cannot be created.
            LakeDamaged: the catalog is gone, but its tables are not.
            PipelineNotFound: a reader found no lake, or the pipeline has never run.
        """
        if self.is_reader:
            self.require()
            return open_catalog(self.settings)
        self._require_catalog()
        folder = local_folder(self.settings.path)
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                problem = f"cannot be created or written ({error.strerror}): {folder}"
                raise SettingError("lake.path", problem) from error
        with reaching(self.settings):
            catalog = open_catalog(self.settings)
            for namespace in (self.pipeline, self.system_namespace):
                catalog.create_namespace_if_not_exists(namespace)
            table_names = require_own(catalog, self.system_namespace, ORIGINAL_TABLES)
            schemas = own_tables(delivers_events=self.delivers_events)
            tables = {name: self._ensure(catalog, name, schemas[name]) for name in KEEPERS}
            require_keepers(catalog, self.system_namespace, tables, table_names)
            tables |= {name: self._ensure(catalog, name, schemas[name]) for name in schemas.keys() - tables}
            new_names = frozenset(schemas) - table_names
            self._table_uuids.update(require_uuids(self.system_namespace, tables, new_names))
            store_uuids(catalog, self.system_namespace, tables, self._table_uuids)
            return catalog

    def _ensure(self, catalog: Catalog, name: str, schema: pa.Schema) -> Table:
        return _ensure(catalog, f"{self.system_namespace}.{name}", schema)

    def _require_catalog(self) -> None:
        """Ensure that no new catalog replaces a lost one: it would have no tables."""
        file, folder = self.settings.catalog_file, local_folder(self.settings.path)
        if file is None or folder is None or (file.is_file() and file.stat().st_size):
            return
        if any(folder.glob(f"{self.system_namespace}/*/metadata/*.json")):
            raise LakeDamaged(f"its catalog {file}", "it no longer exists, but the tables do")

    def require(self) -> None:
        """Ensure that the pipeline is in the lake; readers must not create a new one.

        Raises:
            PipelineNotFound: the lake or the pipeline does not exist.
            LakeDamaged: the catalog is gone, but its tables are not.
        """
        self._require_catalog()
        file = self.settings.catalog_file
        if file is not None and not file.is_file():
            raise PipelineNotFound(
                f"There is no lake at {self.settings.shown_path} (no file {file.name}). Check the setting "
                f"`lake`; if it is right, pipeline `{self.pipeline}` has not run yet: "
                "start it with `cdc-platform sync`."
            )
        with reaching(self.settings):
            catalog = open_catalog(self.settings)
            names = require_own(catalog, self.system_namespace, ORIGINAL_TABLES)
            if names >= {*KEEPERS}:
                tables = {name: load_stored(catalog, f"{self.system_namespace}.{name}") for name in KEEPERS}
                require_keepers(catalog, self.system_namespace, tables, names)
                self._table_uuids.update(require_uuids(self.system_namespace, tables))
        if RAW not in names:
            raise PipelineNotFound(
                f"The lake at {self.settings.shown_path} holds no pipeline `{self.pipeline}`; it holds "
                f"{_pipeline_names(catalog)}. Check the settings `name` and `lake`; if they are right, it "
                "has not run yet: start it with `cdc-platform sync`."
            )

    def system_table(self, name: str) -> Table:
        """Return the current version of one of the platform's own tables.

        Raises:
            LakeDamaged: another program has replaced it.
        """
        table = load_stored(self.catalog, f"{self.system_namespace}.{name}")
        uuid = str(table.metadata.table_uuid)
        if name != CHECK_RESULTS and self._table_uuids.setdefault(name, uuid) != uuid:
            raise LakeDamaged.replaced(f"{self.system_namespace}.{name}")
        return table

    @cached_value
    def _table_uuids(self) -> dict[str, str]:
        """The unique identifiers of the platform's own tables, as the lake has them, or as first loaded."""
        return {}

    def table(self, source_table: str) -> Table | None:
        """Return the current version of the table of a source table, or None."""
        with suppress(NoSuchTableError):
            return load_stored(self.catalog, f"{self.pipeline}.{lake_table_name(source_table)}")
        return None

    def table_names(self) -> tuple[str, ...]:
        """Return the names of the pipeline's tables in the lake, sorted."""
        return tuple(sorted(identifier[-1] for identifier in self.catalog.list_tables(self.pipeline)))

    def table_files(self) -> Mapping[str, str | None]:
        """Return the metadata files of the pipeline's tables; None where the catalog does not list them."""
        if isinstance(self.catalog, LakeSqlCatalog):
            return self.catalog.metadata_files(self.pipeline)
        return dict.fromkeys(self.table_names())

    def spark_system_table(self, name: str) -> str:
        """Return the quoted name of one of the platform's own tables in Spark."""
        _ = self.catalog  # ensures that it exists
        return quote_spark(CATALOG, self.system_namespace, name)

    def spark_table(self, source_table: str, branch: str | None = None) -> str:
        """Return the quoted name of the table of a source table in Spark."""
        parts = (CATALOG, self.pipeline, lake_table_name(source_table))
        return quote_spark(*parts, *((f"branch_{branch}",) if branch else ()))


def _pipeline_names(catalog: Catalog) -> str:
    names = sorted(namespace[0] for namespace in catalog.list_namespaces())
    return ", ".join(f"`{name}`" for name in names if f"{name}__cdc" in names) or "none at all"


def _ensure(catalog: Catalog, identifier: str, schema: pa.Schema) -> Table:
    """Return one of the platform's own tables, which is created if it is missing."""
    retention = SMALL_COMMITS if identifier.endswith((QUARANTINE, *UNMAINTAINED)) else KEPT_BY_TIME
    table_properties = COMPARE_AND_SET | {name: retention[name] for name in KEPT_BY_TIME}
    try:
        table = load_stored(catalog, identifier)
    except LakeDamaged as damage:
        if not identifier.endswith(CHECK_RESULTS):
            raise
        drop_results(catalog, identifier, damage)
        return _ensure(catalog, identifier, schema)
    except NoSuchTableError:
        fixed_properties = {"format-version": "2", FORMAT_PROPERTY: str(FORMAT_VERSION)}
        properties = fixed_properties | SMALL_COMMITS | plain_columns(identifier, schema) | table_properties
        with suppress(TableAlreadyExistsError):
            return catalog.create_table(identifier, schema=schema, properties=properties)
        return load_stored(catalog, identifier)
    version = table.properties.get(FORMAT_PROPERTY, "1")
    if not version.isdecimal() or int(version) > FORMAT_VERSION:
        raise LakeFormatUnknown(
            f"Table `{identifier}` has format version {version}, this platform knows {FORMAT_VERSION}. "
            "Upgrade cdc_platform, or name another lake."
        )
    _complete(table, schema, table_properties)
    return table


def _complete(table: Table, schema: pa.Schema, properties: Mapping[str, str]) -> None:
    """Add columns that tables of this format did not have originally; all of them may be NULL."""

    def complete() -> None:
        current = table.catalog.load_table(table.name())
        with current.transaction() as transaction:
            with transaction.update_schema() as update:
                update.union_by_name(schema)
            transaction.set_properties(dict(properties))

    has_columns = set(schema.names) <= set(table.schema().column_names)
    if not (has_columns and properties.items() <= table.properties.items()):
        # Another process may open the same lake.
        commit_again(complete, CommitConflict.of(".".join(table.name())))
