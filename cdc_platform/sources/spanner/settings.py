"""Settings of a Spanner change stream, and their JSON form for Spark's workers."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Final

from cdc_platform.errors import SettingError
from cdc_platform.model.base.timestamps import from_rfc3339
from cdc_platform.model.stream.source_capabilities import CHANGE_STREAM, SourceCapabilities

EMULATOR_VARIABLE: Final = "SPANNER_EMULATOR_HOST"
"""Environment variable by which all of Google's clients find an emulator."""


class Dialect(StrEnum):
    """The SQL that a database speaks, fixed when it is created."""

    GOOGLESQL = "googlesql"
    """Records are arrays of structs; names in SQL are quoted by backticks."""
    POSTGRESQL = "postgresql"
    """Records are JSON objects; names in SQL are quoted by double quotes, and their case counts."""


DIALECTS: Final = tuple(dialect.value for dialect in Dialect)
PRIORITIES: Final = ("LOW", "MEDIUM", "HIGH")
HEARTBEAT_MS_MIN: Final = 100
HEARTBEAT_MS_MAX: Final = 300_000
SILENT_HEARTBEATS: Final = 10
"""So many heartbeats that fail to come make a partition stuck, unless a setting says otherwise."""
LEAST_SILENCE_S: Final = 20.0
"""A busy instance may take a while for its first answer, however short the heartbeats are."""


@dataclass(frozen=True)
class SpannerSettings:
    """Where a change stream is, and how it is read.

    ``start_timestamp`` is RFC 3339 and matters only before the first cycle; without it a pipeline begins
    at the source's present. ``dialect`` is detected where it is not given. ``nanosecond_columns`` are
    timestamps, as `TABLE.COLUMN`, that the lake keeps as text with nine digits of a second.
    ``stuck_after_s`` is how long a partition may send nothing at all; None means ten heartbeats, at least
    20 s. ``data_boost`` lets compute of its own answer the initial copy, not the instance.
    """

    project: str
    instance: str
    database: str
    change_stream: str
    start_timestamp: str | None = None
    dialect: str | None = None
    emulator_host: str | None = None
    database_role: str | None = None
    heartbeat_ms: int = 2000
    stuck_after_s: float | None = None
    priority: str = "HIGH"
    data_boost: bool = False
    request_tag: str = "cdc_platform"
    deadline_s: float = 60.0
    connect_deadline_s: float = 8.0
    max_attempts: int = 5
    backoff_initial_s: float = 0.2
    backoff_max_s: float = 5.0
    nanosecond_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("project", "instance", "database", "change_stream"):
            if not getattr(self, name).strip():
                raise SettingError(name, "is empty; write its name in Spanner")
        _check_one_of("dialect", self.dialect, (None, *DIALECTS))
        _check_one_of("priority", self.priority, PRIORITIES)
        if not HEARTBEAT_MS_MIN <= self.heartbeat_ms <= HEARTBEAT_MS_MAX:
            limits = f"{HEARTBEAT_MS_MIN} and {HEARTBEAT_MS_MAX}"
            raise SettingError("heartbeat_ms", f"must be between {limits}, but is: {self.heartbeat_ms}")
        if self.stuck_after_s is not None:
            _check_silence(self.stuck_after_s, self.heartbeat_ms)
        for name in ("deadline_s", "connect_deadline_s", "max_attempts"):
            if not 0 < getattr(self, name) < math.inf:
                raise SettingError(name, f"must be positive and finite, but is: {getattr(self, name)}")
        _check_timestamp("start_timestamp", self.start_timestamp)
        _check_host("emulator_host", self.emulator_host)
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
        return max(LEAST_SILENCE_S, SILENT_HEARTBEATS * self.heartbeat_ms / 1000)

    @property
    def title(self) -> str:
        """Name of the change stream as messages say it."""
        return f"change stream `{self.change_stream}` of {self.database_path}"

    @property
    def capabilities(self) -> SourceCapabilities:
        """What a change stream promises of its changes."""
        return CHANGE_STREAM

    @property
    def begins_at_present(self) -> bool:
        """Whether a new pipeline begins at the source's present, so that older rows come by a copy only."""
        return self.start_timestamp is None

    def impatient(self, deadline_s: float) -> "SpannerSettings":
        """Return the same with at most one attempt of so many seconds, for whoever cannot wait."""
        return replace(self, deadline_s=min(deadline_s, self.deadline_s), max_attempts=1)

    def with_environment(self, environment: Mapping[str, str] = os.environ) -> "SpannerSettings":
        """Return the settings with the emulator that the environment names, unless they name one."""
        host = self.emulator_host or environment.get(EMULATOR_VARIABLE) or None
        return replace(self, emulator_host=host)

    def to_options(self) -> str:
        """Return the settings as JSON text, equal for equal settings."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_options(cls, text: str) -> "SpannerSettings":
        """Return the settings of a JSON text that `to_options` made."""
        fields = json.loads(text)
        return cls(**{**fields, "nanosecond_columns": tuple(fields["nanosecond_columns"])})


def _check_one_of(setting: str, value: str | None, allowed: tuple[str | None, ...]) -> None:
    if value not in allowed:
        known = ", ".join(str(item) for item in allowed if item is not None)
        raise SettingError(setting, f"must be one of {known}, but is: {value!r}")


def _check_silence(stuck_after_s: float, heartbeat_ms: int) -> None:
    if not heartbeat_ms / 1000 < stuck_after_s < math.inf:
        problem = f"must be finite and longer than `heartbeat_ms`, {heartbeat_ms}, but is: {stuck_after_s} s"
        raise SettingError("stuck_after_s", problem)


def _check_timestamp(setting: str, value: str | None) -> None:
    if value is None:
        return
    try:
        from_rfc3339(value)
    except ValueError as error:
        example = "2026-01-31T08:00:00Z"
        raise SettingError(setting, f"must look like {example}, but is: {value!r}") from error


def _check_host(setting: str, value: str | None) -> None:
    if value is not None and ("://" in value or ":" not in value):
        raise SettingError(setting, f"must look like localhost:9010, without a scheme, but is: {value!r}")
