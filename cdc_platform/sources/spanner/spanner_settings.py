"""Settings of a Spanner change stream, and their JSON form for Spark's workers."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Final, Self

from cdc_platform.errors import SettingError
from cdc_platform.model.base.declared_settings import (
    Described,
    check_filled,
    check_host,
    check_members,
    check_range,
    micros_of_setting,
)
from cdc_platform.model.stream.source_capabilities import CHANGE_STREAM, SourceCapabilities, SourceSettings

EMULATOR_VARIABLE: Final = "SPANNER_EMULATOR_HOST"
"""Environment variable by which all of Google's clients find an emulator."""


class Dialect(StrEnum):
    """The SQL dialect of a database, fixed when it is created."""

    GOOGLESQL = "googlesql"
    """Records are arrays of structs; names in SQL are quoted by backticks."""
    POSTGRESQL = "postgresql"
    """Records are JSON objects; names in SQL are quoted by double quotes, and their case counts."""


class PartitionMode(StrEnum):
    """Division of a change stream's keys among its partitions, fixed when the stream is created."""

    IMMUTABLE_KEY_RANGE = "IMMUTABLE_KEY_RANGE"
    """A partition keeps its keys until it ends, and its children continue it."""
    MUTABLE_KEY_RANGE = "MUTABLE_KEY_RANGE"
    """Keys move between partitions that continue; records are messages, and queries are bounded."""


class Priority(StrEnum):
    """Priority of a request within its instance."""

    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"


HEARTBEAT_MS_MIN: Final = 100
HEARTBEAT_MS_MAX: Final = 300_000
SILENT_HEARTBEATS: Final = 10
"""Number of missing heartbeats after which a partition is stuck, unless a setting says otherwise."""
MIN_SILENCE_S: Final = 20.0
"""A busy instance may take a while for its first answer, however short the heartbeats are."""


@dataclass(frozen=True)
class SpannerSettings(SourceSettings):
    """Location of a change stream, and how to read it."""

    project: Annotated[str, Described("Google Cloud project that holds the instance.")]
    instance: Annotated[str, Described("Spanner instance.")]
    database: Annotated[str, Described("Database of the instance.")]
    change_stream: Annotated[str, Described("Change stream of the database.")]
    start_timestamp: Annotated[
        str | None,
        Described(
            "First commit timestamp to read, RFC 3339, at the first start of the pipeline; empty means now."
        ),
    ] = None
    dialect: Annotated[Dialect | None, Described("Dialect of the database; empty asks the database.")] = None
    emulator_host: Annotated[
        str | None,
        Described(
            "HOST:PORT of a Spanner emulator; empty means SPANNER_EMULATOR_HOST or, if unset, Spanner itself."
        ),
    ] = None
    database_role: Annotated[
        str | None, Described("Database role to read as, for fine-grained access control.")
    ] = None
    heartbeat_ms: Annotated[
        int, Described("Milliseconds after which an idle partition sends a heartbeat.")
    ] = 2000
    stuck_after_s: Annotated[
        float | None,
        Described(
            "Seconds without records or heartbeats after which a partition counts as stuck; empty means ten "
            "heartbeats, but at least 20."
        ),
    ] = None
    priority: Annotated[Priority, Described("Priority of the reads within the instance.")] = Priority.HIGH
    data_boost: Annotated[
        bool,
        Described(
            "Whether the initial copy runs on Data Boost, which is billed separately and needs "
            "`spanner.databases.useDataBoost`."
        ),
    ] = False
    partition_mode: PartitionMode | None = None
    request_tag: str = "cdc_platform"
    deadline_s: Annotated[
        float, Described("Seconds after which one call to the source counts as failed.")
    ] = 60.0
    connect_deadline_s: float = 8.0
    max_attempts: Annotated[int, Described("Attempts at a read before it counts as failed.")] = 5
    backoff_initial_s: float = 0.2
    backoff_max_s: float = 5.0
    nanosecond_columns: Annotated[
        tuple[str, ...],
        Described(
            "Timestamp columns, as `TABLE.COLUMN`, that the lake keeps as text with nanoseconds; fixed once "
            "the table is created."
        ),
    ] = ()

    def __post_init__(self) -> None:
        check_filled(self, problem="is empty; write its name in Spanner")
        check_members(self)
        check_range(self, ("heartbeat_ms",), at_least=HEARTBEAT_MS_MIN, at_most=HEARTBEAT_MS_MAX)
        if self.stuck_after_s is not None:
            silence = f"longer than `heartbeat_ms`, {self.heartbeat_ms}, but is: {self.stuck_after_s} s"
            if not self.heartbeat_ms / 1000 < self.stuck_after_s < math.inf:
                raise SettingError("stuck_after_s", f"must be finite and {silence}")
        check_range(self, ("deadline_s", "connect_deadline_s", "max_attempts"), above=0)
        if self.start_timestamp is not None:
            micros_of_setting("start_timestamp", self.start_timestamp)
        check_host("emulator_host", self.emulator_host, "localhost:9010")
        for name in ("project", "instance", "database"):
            if "/" in getattr(self, name):
                problem = f"must be the name alone, without a path, but is: {getattr(self, name)}"
                raise SettingError(name, problem)
        for name in self.nanosecond_columns:
            if not all(name.rpartition(".")):
                raise SettingError("nanosecond_columns", f"must look like TABLE.COLUMN, but is: {name!r}")

    @property
    def database_path(self) -> str:
        """Full resource name of the database."""
        return f"projects/{self.project}/instances/{self.instance}/databases/{self.database}"

    @property
    def longest_silence_s(self) -> float:
        """For how long a partition may send nothing before it counts as stuck."""
        if self.stuck_after_s is not None:
            return self.stuck_after_s
        return max(MIN_SILENCE_S, SILENT_HEARTBEATS * self.heartbeat_ms / 1000)

    @property
    def title(self) -> str:
        """Name of the change stream as messages say it."""
        return f"change stream `{self.change_stream}` of {self.database_path}"

    @property
    def capabilities(self) -> SourceCapabilities:
        """Guarantees of a change stream about its changes."""
        return CHANGE_STREAM

    @property
    def begins_at_present(self) -> bool:
        """Whether a new pipeline begins at the source's present, so that older rows come by a copy only."""
        return self.start_timestamp is None

    def with_deadline(self, deadline_s: float) -> Self:
        """Return these settings with a single attempt of at most `deadline_s` seconds per request."""
        return replace(
            self,
            deadline_s=min(deadline_s, self.deadline_s),
            connect_deadline_s=min(deadline_s, self.connect_deadline_s),
            max_attempts=1,
        )

    def with_environment(self, environment: Mapping[str, str] = os.environ) -> Self:
        """Return the settings with the emulator that the environment names, unless they name one.

        Raises:
            SettingError: the environment names it in another form.
        """
        host = self.emulator_host or environment.get(EMULATOR_VARIABLE) or None
        try:
            return replace(self, emulator_host=host)
        except SettingError as error:
            problem = (
                f"is empty, so the environment variable {EMULATOR_VARIABLE} counts, which {error.problem}"
            )
            raise SettingError(error.setting, problem) from error
