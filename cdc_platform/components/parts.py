"""Groups of settings that the YAML of every kind of pipeline has."""

from typing import Annotated, Final

import dagster as dg
from pydantic import ConfigDict, Field

from cdc_platform.components.texts import says_texts
from cdc_platform.spark.session.settings import DEFAULT_PACKAGES


def says(description: str) -> dg.Resolver:
    """Describe a setting; a description of pydantic's own does not reach the schema that editors use."""
    resolver: dg.Resolver = dg.Resolver.default(description=description)
    return resolver


FINITE: Final = ConfigDict(allow_inf_nan=False)
"""Of settings with numbers: no infinity, and nothing that is no number."""


class Lake(dg.Model, dg.Resolvable):
    """Where the tables are, and which catalog knows them."""

    path: Annotated[
        str,
        says(
            "Folder or object store prefix of the lake. A relative folder is relative to the "
            "folder of this file."
        ),
    ]
    catalog: Annotated[
        dict[str, str],
        says_texts(
            "Properties of the Iceberg catalog and the object store as pyiceberg names them (`type`, `uri`, "
            "`warehouse`, `s3.endpoint`, ...), and `user` and `password` of a sql catalog; Spark gets the "
            "same. Empty means the SQLite file `catalog.db` in the lake's folder."
        ),
    ] = Field(default_factory=dict)
    table_format_version: Annotated[
        int, says("Iceberg format version of the merged tables: 3 has deletion vectors.")
    ] = 3


class Spark(dg.Model, dg.Resolvable):
    """Which Spark does the work, and what it is given."""

    master: Annotated[str, says("Master of a session of our own, such as `spark://HOST:7077`.")] = "local[2]"
    remote: Annotated[
        str | None,
        says(
            "Address of a Spark Connect server that knows the lake's catalog, such as "
            "`sc://HOST:15002`; used instead of a session of our own."
        ),
    ] = None
    driver_memory: Annotated[str, says("Heap of the driver of a session of our own.")] = "2g"
    packages: Annotated[
        list[str],
        says(
            "Maven coordinates of Iceberg's jar and of the catalog's driver; what a PostgreSQL catalog and "
            "an object store need besides is added."
        ),
    ] = Field(default_factory=lambda: list(DEFAULT_PACKAGES))
    jars_folder: Annotated[
        str | None,
        says("Folder with these jars, used instead of fetching them; relative to the folder of this file."),
    ] = None
    conf: Annotated[
        dict[str, str], says_texts("Further Spark settings; they win over the platform's own.")
    ] = Field(default_factory=dict)
    ship_package: Annotated[
        bool | None,
        says(
            "Whether this package is sent to the workers, which need its libraries in any case; empty means: "
            "where `master` is a cluster."
        ),
    ] = None
    class_archive: Annotated[
        bool,
        says(
            "Whether Java keeps Spark's classes in the user's cache folder (200 MB), with which the next "
            "start of a session of our own takes half as long."
        ),
    ] = True


class Maintenance(dg.Model, dg.Resolvable):
    """How the lake is kept fast."""

    model_config = FINITE

    minor_every_cycles: Annotated[int, says("Cycles between two compactions of small files.")] = 6
    expire_every_cycles: Annotated[int, says("Cycles between two expiries of snapshots.")] = 120
    small_file_bytes: Annotated[int, says("Files below this size are small ones.")] = 8 * 1024 * 1024
    keep_every_cut_s: Annotated[
        float,
        says(
            "Seconds for which every cut stays readable. Of the time before, one a minute does, and beyond "
            "an hour one each quarter of an hour: each snapshot kept makes every commit a little slower."
        ),
    ] = 600.0
    keep_snapshots_s: Annotated[
        float, says("Seconds for which a cut can stay readable; a pinned one stays for ever.")
    ] = 24 * 3600.0
    keep_snapshots: Annotated[int, says("Number of the newest snapshots that stay whatever their age.")] = 50
    keep_metadata_s: Annotated[
        float,
        says(
            "Least seconds for which a metadata file of a table stays after a newer one has replaced it, so "
            "that an engine that was given its path can finish."
        ),
    ] = 3600.0
    major_deleted_fraction: Annotated[
        float, says("Share of deleted rows above which a table's large files are rewritten.")
    ] = 0.2


class Options(dg.Model, dg.Resolvable):
    """What is kept of a table beyond its current rows."""

    history: Annotated[
        bool,
        says(
            "Whether every version of every row is kept in a table TABLE__history, with `valid_from`, "
            "`valid_to`, `is_current` and `transaction_id` (SCD type 2)."
        ),
    ] = False
    soft_delete: Annotated[
        bool,
        says(
            "Whether deleted rows stay in the table, with `__deleted` true and the moment in `__deleted_at`. "
            "Switched on later, the table is rebuilt by the next cycle, from its initial copy and the log."
        ),
    ] = False


class Runs(dg.Model, dg.Resolvable):
    """How Dagster runs the pipeline."""

    model_config = FINITE

    sensor: Annotated[bool, says("Whether the sensor is on from the start; the UI can switch it later.")] = (
        True
    )
    poll_s: Annotated[int, says("Least seconds between two looks of the sensor; Dagster's floor is 5.")] = 3
    follow_s: Annotated[
        float,
        says(
            "Seconds for which a run that the sensor asked for goes on with further cycles after "
            "its first one; 0 means one cycle a run. It ends early when somebody asks for another run."
        ),
    ] = 600.0
    prove_every_s: Annotated[
        float,
        says(
            "Seconds between two runs that also prove every table equal to the log and to the "
            "source, which reads whole tables."
        ),
    ] = 600.0
    owners: Annotated[list[str], says("Owners of the assets: e-mail addresses, or `team:NAME`.")] = Field(
        default_factory=list
    )
