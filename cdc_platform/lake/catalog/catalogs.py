"""pyiceberg's catalog of a lake."""

from collections.abc import Callable, Mapping
from typing import Final

from pyiceberg.catalog import TYPE, Catalog
from pyiceberg.io import PY_IO_IMPL

from cdc_platform.lake.catalog.files import LakeFiles
from cdc_platform.lake.catalog.lake_settings import CATALOG, LakeSettings
from cdc_platform.lake.catalog.landed_commits import LandedCommits
from cdc_platform.lake.catalog.sql_catalog import LakeSqlCatalog
from cdc_platform.lake.local_writer.metadata import Version3Metadata

FILES: Final = f"{LakeFiles.__module__}.{LakeFiles.__qualname__}"


def open_catalog(settings: LakeSettings) -> Catalog:
    """Return the catalog of a lake, which writes tables of every format version.

    Raises:
        ModuleNotFoundError: a library that the catalog's type needs is not installed.
    """
    properties = {PY_IO_IMPL: FILES, **settings.pyiceberg_properties()}
    kind = properties.pop(TYPE)
    return _CLASSES[kind]()(CATALOG, **properties)


def _rest() -> type[Catalog]:
    from pyiceberg.catalog.rest import RestCatalog

    class LakeRestCatalog(LandedCommits, RestCatalog):
        """The tables of a lake behind a REST catalog, which writes their metadata."""

    return LakeRestCatalog


def _hive() -> type[Catalog]:
    from pyiceberg.catalog.hive import HiveCatalog

    class LakeHiveCatalog(Version3Metadata, HiveCatalog):
        """The tables of a lake in a Hive metastore."""

    return LakeHiveCatalog


def _glue() -> type[Catalog]:
    from pyiceberg.catalog.glue import GlueCatalog

    class LakeGlueCatalog(LandedCommits, Version3Metadata, GlueCatalog):
        """The tables of a lake in AWS Glue."""

    return LakeGlueCatalog


_CLASSES: Final[Mapping[str, Callable[[], type[Catalog]]]] = {
    "sql": lambda: LakeSqlCatalog,
    "rest": _rest,
    "hive": _hive,
    "glue": _glue,
}
