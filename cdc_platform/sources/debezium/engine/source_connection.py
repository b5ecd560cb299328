"""Connections to the engine's source through Java's driver."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from cdc_platform.errors import AccessDenied, CaptureStopped, SourceError, SourceNotFound, SourceUnreachable
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput

_PROPERTIES: Final = ("sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert", "sslfactory")
_STATES: Final[tuple[tuple[str, type[SourceError], str], ...]] = (
    # prefix of the SQL state, error, advice
    ("28", AccessDenied, "Check `user` and `password`, and that pg_hba.conf lets the role in."),
    ("3D", SourceNotFound, "Check `database`: the server has none of this name."),
    ("08", SourceUnreachable, "Check `host` and `port`, and that the server runs and may be reached."),
    ("57P", SourceUnreachable, "The server is starting or stopping."),
    ("53", SourceUnreachable, "The server has no connection left."),
)


@contextmanager
def connect(settings: EngineInput) -> Iterator[Any]:
    """Connect to the source.

    Raises:
        SourceError: the server cannot be reached, or rejects a query.
    """
    import jpype

    properties = jpype.JClass("java.util.Properties")()
    login = {"user": settings.user, "password": settings.password, "loginTimeout": "30"} | {
        name: settings.properties[f"database.{name}"]
        for name in _PROPERTIES
        if f"database.{name}" in settings.properties
    }
    for name, value in login.items():
        properties.setProperty(name, value)
    address = f"jdbc:postgresql://{settings.host}:{settings.port}/{settings.database}"
    try:
        connection = jpype.JClass("org.postgresql.Driver")().connect(address, properties)
        try:
            yield connection
        finally:
            connection.close()
    except jpype.JClass("java.sql.SQLException") as error:
        raise _meaning(error, settings) from error


def _meaning(error: Any, settings: EngineInput) -> SourceError:
    state, text = str(error.getSQLState()), str(error.getMessage())
    for beginning, kind, advice in _STATES:
        if state.startswith(beginning):
            return kind(f"{advice} Source: {settings.database_text()}: {text}")
    return CaptureStopped(f"The source rejects an engine query. Source: {settings.database_text()}: {text}")


def first_text(connection: Any, query: str, *values: str) -> str | None:
    """Return the first value of a query's result; None if it has no row, or NULL."""
    row = first_row(connection, query, *values)
    return row[0] if row is not None else None


def first_row(connection: Any, query: str, *values: str) -> tuple[str | None, ...] | None:
    """Return the first row of a query's result, as texts."""
    statement = connection.prepareStatement(query)
    try:
        for number, value in enumerate(values, 1):
            statement.setString(number, value)
        rows = statement.executeQuery()
        if not rows.next():
            return None
        count = int(rows.getMetaData().getColumnCount())
        texts = [rows.getString(number) for number in range(1, count + 1)]
        return tuple(None if text is None else str(text) for text in texts)
    finally:
        statement.close()
