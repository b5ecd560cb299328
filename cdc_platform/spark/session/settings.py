"""Which Spark does the work, and what it is given."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

DEFAULT_PACKAGES: Final = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.xerial:sqlite-jdbc:3.53.4.0",
)
POSTGRESQL_DRIVER: Final = "org.postgresql:postgresql:42.7.14"
KAFKA_CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1"


@dataclass(frozen=True)
class SparkSettings:
    """Settings of the Spark session.

    Args:
        master: master of a classic session, for instance `local[2]` or `spark://HOST:7077`.
        remote: address of a Spark Connect server (`sc://HOST:PORT`), used instead of a master.
        driver_memory: heap of the driver, for instance `2g`.
        packages: Maven coordinates of Iceberg's jar and the catalog's driver; what a PostgreSQL catalog and
            an object store need besides is added.
        jars_folder: folder of local jars, used instead of packages where nothing can be fetched.
        conf: further Spark settings; they win over the platform's own.
        ship_package: whether this package is sent to the workers; None means where they are other machines
            than the driver's.
        class_archive: whether Java keeps Spark's classes in the user's cache, for the next start.
    """

    master: str = "local[2]"
    # Without a representation, as its parameters may hold a token.
    remote: str | None = field(default=None, repr=False)
    driver_memory: str = "2g"
    packages: tuple[str, ...] = DEFAULT_PACKAGES
    jars_folder: str | None = None
    # Without a representation: it may hold credentials, and settings may end up in a traceback.
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    ship_package: bool | None = None
    class_archive: bool = True

    @property
    def address(self) -> str:
        """Where Spark is, for people: a remote address without its parameters, which may hold a token."""
        return self.master if self.remote is None else self.remote.partition(";")[0]

    @property
    def is_local(self) -> bool:
        """Whether a session of our own works in the driver's process alone."""
        return self.remote is None and self.master.startswith("local")

    @property
    def ships_package(self) -> bool:
        """Whether this package is sent to the workers; a server that is named has packages of its own."""
        if self.ship_package is None:
            return self.remote is None and not self.is_local
        return self.ship_package

    def with_kafka(self) -> "SparkSettings":
        """Return the same with Spark's source of Kafka among the packages, where none of them is it."""
        name = KAFKA_CONNECTOR.rpartition(":")[0]
        if any(package.startswith(f"{name}:") for package in self.packages):
            return self
        return replace(self, packages=(*self.packages, KAFKA_CONNECTOR))
