"""The simulated database: answers every statement of a reader, independently of gRPC."""

import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.simulator.history.history import Clock, History
from cdc_platform.simulator.sql.information import Information, asks_information
from cdc_platform.simulator.sql.reads import Result, TableReads, plain_result
from cdc_platform.simulator.sql.sql import StreamCall, find_stream_call
from cdc_platform.simulator.stream.faults import Faults
from cdc_platform.simulator.stream.stream import ChangeStream
from cdc_platform.simulator.wire.problems import (
    STREAMS_ALONE,
    Refusal,
    not_answered,
    shown_moment,
    syntax_error,
)
from cdc_platform.simulator.wire.values import INT64, TIMESTAMP

_CLOCK: Final = re.compile(
    r"\s*SELECT\b(?P<expression>.*\b(?:CURRENT_TIMESTAMP|now)\b.*)", re.IGNORECASE | re.DOTALL
)
_AS_MICROS: Final = re.compile(r"micros|epoch", re.IGNORECASE)
_FROM_TABLE: Final = re.compile(r"\bFROM\s+(?!CURRENT_TIMESTAMP|now\b|\()", re.IGNORECASE)
_WRITE: Final = re.compile(r"\s*(?:INSERT|UPDATE|DELETE|CREATE|ALTER|DROP)\b", re.IGNORECASE)
MAX_CHARACTERS: Final = 30_000
"""Maximum number of characters of a query, which regular expressions split; long lists are parameters."""


@dataclass(frozen=True)
class Statement:
    """A query with its parameters, its read time, and flags for strong reads and plans.

    `types` are the type codes of the parameters that declare one.

    Raises:
        Refusal: the query is too long.
    """

    sql: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    read_micros: int = 0
    is_strong_single_use: bool = True
    is_plan: bool = False
    types: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.sql) > MAX_CHARACTERS:
            raise not_answered(f"the query has more than {MAX_CHARACTERS:,} characters")


class Database:
    """Tables, information schema and change stream over one history."""

    def __init__(self, history: History, clock: Clock) -> None:
        self.history, self._settings = history, history.settings
        self.stream = ChangeStream(history, clock)
        self.faults = Faults(history.settings)
        self.reads = TableReads(history)
        self._information = Information(history.settings)

    def now_micros(self) -> int:
        """Return the current time, and generate the history up to it."""
        return self.stream.now_micros()

    def stream_call(self, statement: Statement) -> StreamCall | None:
        """Return the checked change stream query of a statement; None for other statements.

        Raises:
            Refusal: it is one, but Spanner would reject it.
        """
        placements = self.history.schemas.at(self.now_micros()).placements
        call = find_stream_call(
            statement.sql, statement.parameters, self._settings, statement.types, placements
        )
        if call is None:
            return None
        if not statement.is_strong_single_use:
            raise Refusal(
                "INVALID_ARGUMENT",
                f"Change stream queries are not supported for multi use transactions. {STREAMS_ALONE}",
            )
        if statement.is_plan:
            raise Refusal("UNIMPLEMENTED", "Change stream queries are not supported in query mode PLAN.")
        self.stream.check(call.query)
        return call

    def answer(self, statement: Statement) -> Result:
        """Return the answer to any other statement.

        Raises:
            Refusal: it cannot be answered.
        """
        self.check_moment(statement.read_micros)
        if _WRITE.match(statement.sql):
            raise Refusal(
                "INVALID_ARGUMENT",
                "DML statements may not be performed in single-use transactions, to avoid replay.",
            )
        if asks_information(statement.sql, self._settings.dialect):
            return self._information_result(statement)
        clock = _CLOCK.fullmatch(statement.sql)
        if clock is not None and not _FROM_TABLE.search(clock["expression"]):
            return self._clock_result(clock["expression"], statement.read_micros)
        return self.reads.answer(statement.sql, statement.parameters, statement.read_micros)

    def check_moment(self, micros: int) -> None:
        """Check that the versions of a time are still available.

        Raises:
            Refusal: they are not.
        """
        oldest = self.now_micros() - self._settings.version_retention_s * 1_000_000
        if micros < max(oldest, self.history.origin_micros):
            raise Refusal(
                "FAILED_PRECONDITION",
                f"Read-only transaction timestamp {shown_moment(micros)} has exceeded the maximum timestamp "
                "staleness",
            )

    def _information_result(self, statement: Statement) -> Result:
        schema = self.history.schemas.at(statement.read_micros)
        try:
            columns, rows = self._information.answer(statement.sql, statement.parameters, schema)
        except sqlite3.Error as error:
            raise syntax_error(self._settings.dialect, str(error)) from error
        return plain_result(columns, rows)

    def _clock_result(self, expression: str, micros: int) -> Result:
        if _AS_MICROS.search(expression):
            return plain_result([("", INT64)], [(micros,)])
        return plain_result([("", TIMESTAMP)], [(to_rfc3339(micros),)])
