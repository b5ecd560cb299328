"""Client of a change stream: the connection to its database, and the stream's properties."""

from functools import lru_cache
from typing import Final

from cdc_platform.errors import DialectMismatch, SourceNotFound
from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.base.timestamps import from_rfc3339
from cdc_platform.sources.spanner.client.connection import SpannerConnection
from cdc_platform.sources.spanner.client.placements import has_placements, placed_token, placement_functions
from cdc_platform.sources.spanner.client.query import DIALECT_QUERY, Query, ReadFunction
from cdc_platform.sources.spanner.information_schema import (
    INFORMATION_SCHEMAS,
    PLACEMENT_OPTIONS,
    ROUTINE_NAMES,
    STREAM_NAMES,
)
from cdc_platform.sources.spanner.spanner_settings import Dialect, PartitionMode, SpannerSettings

_DIALECTS: Final = {"GOOGLE_STANDARD_SQL": Dialect.GOOGLESQL, "POSTGRESQL": Dialect.POSTGRESQL}
_CLOCK_SQL: Final = "SELECT UNIX_MICROS(CURRENT_TIMESTAMP())"
# PostgreSQL has no function for microseconds.
_POSTGRESQL_CLOCK_SQL: Final = "SELECT CURRENT_TIMESTAMP"


class SpannerClient(SpannerConnection):
    """Client of one change stream and its database; safe to use from several threads, not across a fork."""

    def __init__(self, settings: SpannerSettings) -> None:
        super().__init__(settings)
        self._dialect: Dialect | None = None
        self._options: dict[str, str] | None = None

    @property
    def dialect(self) -> Dialect:
        """The dialect of the setting, or else of the database.

        Raises:
            DialectMismatch: this version does not support the database's dialect.
            SourceError: the database was queried, and did not answer.
        """
        if self.settings.dialect is not None:
            return Dialect(self.settings.dialect)
        return self._dialect or self.fetch_dialect()

    def fetch_dialect(self) -> Dialect:
        """Return the dialect of the database, regardless of the setting.

        Raises:
            DialectMismatch: this version does not support it.
            SourceError: the database did not answer.
        """
        rows = self.fetch_texts(Query(DIALECT_QUERY))
        spoken = str(rows[0][0]) if rows else "no dialect"
        if spoken not in _DIALECTS:
            raise DialectMismatch(
                f"{self.settings.database_path} uses {spoken}, and this version reads "
                f"{' and '.join(_DIALECTS.values())}. Update the platform, or check `database`",
            )
        self._dialect = _DIALECTS[spoken]
        return self._dialect

    @property
    def partition_mode(self) -> PartitionMode:
        """The partition mode of the setting, or else of the stream's options.

        Raises:
            SourceError: the database was queried, and did not answer.
        """
        if self.settings.partition_mode is not None:
            return PartitionMode(self.settings.partition_mode)
        mode = self._known_options().get("partition_mode", "").strip("'\"")
        is_mutable = mode == PartitionMode.MUTABLE_KEY_RANGE
        return PartitionMode.MUTABLE_KEY_RANGE if is_mutable else PartitionMode.IMMUTABLE_KEY_RANGE

    def clock_micros(self) -> int:
        """Return the time of the source, from a strong read."""
        if self.dialect is Dialect.POSTGRESQL:
            return from_rfc3339(str(self.fetch_texts(Query(_POSTGRESQL_CLOCK_SQL))[0][0]))
        return int(str(self.fetch_texts(Query(_CLOCK_SQL))[0][0]))

    @property
    def read_function(self) -> ReadFunction:
        """The read function of the change stream.

        Raises:
            SourceError: the database was queried for its dialect or the stream's mode, and did not answer.
        """
        if self.dialect is Dialect.GOOGLESQL:
            return ReadFunction.OF_GOOGLESQL
        if self.partition_mode is PartitionMode.MUTABLE_KEY_RANGE:
            return ReadFunction.OF_POSTGRESQL_MESSAGES
        return ReadFunction.OF_POSTGRESQL

    @property
    def whole_function(self) -> str:
        """The name of the read function, which is also the prefix of those of placements."""
        return f"{self.read_function}{self.settings.change_stream}"

    def fetch_placement_tokens(self) -> list[str]:
        """Return the tokens of the queries that list each placement's partitions; none without placements.

        Raises:
            SourceNotFound: the stream has placements, but none of their read functions is visible.
            SourceError: the database was queried for them, and did not answer.
        """
        is_mutable = self.partition_mode is PartitionMode.MUTABLE_KEY_RANGE
        if not is_mutable or not has_placements(self._known_options()):
            return []
        streams, routines = (
            [str(name) for (name,) in self.fetch_texts(query)] for query in (STREAM_NAMES, ROUTINE_NAMES)
        )
        placements = [
            str(name)
            for name, option, value in self.fetch_texts(PLACEMENT_OPTIONS)
            if has_placements({str(option): str(value)})
        ]
        other_functions, placed_others = (
            [f"{self.read_function}{name}" for name in names] for names in (streams, placements)
        )
        functions = placement_functions(routines, self.whole_function, other_functions, placed_others)
        if not functions:
            raise SourceNotFound(
                f"The {self.settings.title} has per_placement_tvf = true, and information_schema.routines "
                f"lists no function {self.whole_function}_PLACEMENT. Give this account EXECUTE on the read "
                "function of each placement",
            )
        return [placed_token(function, ROOT_TOKEN) for function in functions]

    def _known_options(self) -> dict[str, str]:
        # The options that the client uses are fixed when the stream is created.
        return self.fetch_options() if self._options is None else self._options

    def fetch_options(self, read_micros: int | None = None) -> dict[str, str]:
        """Return the options of the change stream by name, now or at a timestamp."""
        query = INFORMATION_SCHEMAS[self.dialect].options(self.settings.change_stream)
        rows = self.fetch_texts(query, read_micros)
        self._options = {str(key): str(value) for key, value in rows}
        return self._options


@lru_cache(maxsize=8)
def client_of(settings_json: str) -> SpannerClient:
    """Return the client for the settings in this Spark worker; later tasks reuse it."""
    return SpannerClient(SpannerSettings.from_options(settings_json))
