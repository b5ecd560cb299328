"""Settings of Spark: which one does the work, and its properties."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from cdc_platform.errors import SettingError
from cdc_platform.model.base.declared_settings import Described

DEFAULT_PACKAGES: Final = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.xerial:sqlite-jdbc:3.53.4.0",
)
POSTGRESQL_DRIVER: Final = "org.postgresql:postgresql:42.7.14"
_PACKAGE: Final = ("GROUP", "ARTIFACT", "VERSION")
_MASTER: Final = re.compile(
    r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?|local-cluster\[[\d, ]+\]|yarn|k8s://\S+"
    r"|spark://(\[[\da-fA-F:.]+\]|[^\s:]+):\d+(,(\[[\da-fA-F:.]+\]|[^\s:]+):\d+)*"
)
_MEMORY: Final = re.compile(r"[1-9]\d*[kmgtKMGT]")
_REMOTE: Final = re.compile(r"sc://[^\s/:;]+(:\d+)?(/.*)?")


@dataclass(frozen=True)
class SparkSettings:
    """Spark that does the work, and its resources."""

    master: Annotated[
        str, Described("Master of the platform's own session, such as `local[2]` or `spark://HOST:7077`.")
    ] = "local[2]"
    # Without a representation, as its parameters may hold a token.
    remote: Annotated[
        str | None,
        Described(
            "Address of a Spark Connect server, such as `sc://HOST:15002`, which replaces the platform's own "
            "session."
        ),
    ] = field(default=None, repr=False)
    driver_memory: Annotated[
        str, Described("Heap of the driver of the platform's own session, such as `2g`.")
    ] = "2g"
    packages: Annotated[
        tuple[str, ...],
        Described(
            "Maven coordinates of Iceberg's jar and of the catalog's driver; others are added as needed."
        ),
    ] = DEFAULT_PACKAGES
    jars_folder: Annotated[
        str | None,
        Described(
            "Folder with these jars, used instead of downloading them; relative to the folder of this file.",
            is_path=True,
        ),
    ] = None
    # Without a representation, because it may hold credentials and settings may appear in a traceback.
    conf: Annotated[
        Mapping[str, str], Described("Further Spark settings; they override the platform's own.")
    ] = field(default_factory=dict, repr=False)
    ship_package: Annotated[
        bool | None,
        Described("Whether to send this package to the workers; empty means only if `master` is a cluster."),
    ] = None
    class_archive: Annotated[
        bool,
        Described(
            "Whether Java caches Spark's classes in the user's cache folder (200 MB), which halves the time "
            "of the next start."
        ),
    ] = True

    def __post_init__(self) -> None:
        if self.remote is not None and _REMOTE.fullmatch(self.remote) is None:
            raise SettingError("spark.remote", f"must look like sc://HOST:15002, but is: {self.address}")
        if _MASTER.fullmatch(self.master) is None:
            raise SettingError(
                "spark.master",
                "must be local[CORES], such as local[2] or local[*], spark://HOST:7077, yarn or "
                f"k8s://ADDRESS, but is: {self.master!r}",
            )
        if _MEMORY.fullmatch(self.driver_memory) is None:
            problem = f"must be a number with k, m, g or t, such as 2g, but is: {self.driver_memory!r}"
            raise SettingError("spark.driver_memory", problem)
        for name in self.conf:
            if not name.startswith("spark."):
                problem = (
                    f"must begin with `spark.`: `spark.{name}`, or `spark.hadoop.{name}` if it is Hadoop's"
                )
                raise SettingError(f"spark.conf.{name}", problem)
        for number, package in enumerate(self.packages):
            # Spark also accepts GROUP/ARTIFACT:VERSION.
            parts = package.replace("/", ":").split(":")
            if len(parts) != len(_PACKAGE) or not all(parts):
                problem = f"must look like {':'.join(_PACKAGE)}, but is: {package!r}"
                raise SettingError(f"spark.packages.{number}", problem)

    @property
    def address(self) -> str:
        """Address of Spark, for people; a remote one omits its parameters, which may hold a token."""
        return self.master if self.remote is None else self.remote.partition(";")[0]

    @property
    def is_local(self) -> bool:
        """Whether the platform's own session runs only in the driver's process."""
        master = self.conf.get("spark.master", self.master)
        return self.remote is None and master.startswith("local") and not master.startswith("local-cluster")

    @property
    def ships_package(self) -> bool:
        """Whether to send this package to the workers; a remote server has its own packages."""
        if self.ship_package is None:
            return self.remote is None and not self.is_local
        return self.ship_package
