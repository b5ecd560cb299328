"""Modes of the connector, and choices that Debezium leaves to a pipeline."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from cdc_platform.errors import SettingError
from cdc_platform.model.base.declared_settings import Described, check_members


class Strategy(StrEnum):
    """Treatment of a value that the source did not send."""

    OMIT = "omit"
    """The merge omits the column: the stored value stays. The log keeps the column unavailable."""
    VETO = "veto"
    """The change names the column, marked as unavailable, and the table vetoes the change of this value."""
    ENRICH = "enrich"
    """The log itself is completed from the batch and the tables, so that every reader sees whole rows."""


class SnapshotPolicy(StrEnum):
    """Effect of a repeated snapshot on rows that it does not have."""

    MERGE = "merge"
    """The rows stay and are reported."""
    REPLACE = "replace"
    """The rows are removed: the snapshot is the whole table."""


class NullPolicy(StrEnum):
    """Meaning of a null in an update, where the column's type has no marker for an unavailable value."""

    UNAVAILABLE = "unavailable"
    """The value was not sent: a real change to NULL is missed."""
    NULL = "null"
    """The value is NULL: a value that was not sent is lost."""
    ERROR = "error"
    """The event goes to quarantine until the meaning is configured."""


DEFAULT_PLACEHOLDER: Final = "__debezium_unavailable_value"
"""Placeholder for a value that was not sent, unless the connector is configured with another text."""


class DecimalMode(StrEnum):
    """The connector's `decimal.handling.mode`."""

    PRECISE = "precise"
    """Unscaled numbers in base64, with the scale in the schema block or the declared type."""
    STRING = "string"
    """Texts."""
    DOUBLE = "double"
    """JSON numbers, which lose digits."""


class TimeMode(StrEnum):
    """The connector's `time.precision.mode`."""

    ADAPTIVE = "adaptive"
    """Milliseconds for a precision up to 3, otherwise microseconds."""
    ADAPTIVE_TIME_MICROSECONDS = "adaptive_time_microseconds"
    """The same, but times of day always in microseconds."""
    CONNECT = "connect"
    """Always milliseconds: microseconds are lost."""
    ISOSTRING = "isostring"
    """ISO 8601 texts."""
    MICROSECONDS = "microseconds"
    """Always microseconds."""
    NANOSECONDS = "nanoseconds"
    """Always nanoseconds."""


class BinaryMode(StrEnum):
    """The connector's `binary.handling.mode`."""

    BYTES = "bytes"
    """Base64, written by the JSON converter."""
    BASE64 = "base64"
    """Base64, written by the connector: an unavailable value arrives as null."""
    BASE64_URL_SAFE = "base64-url-safe"
    """The same with the URL alphabet."""
    HEX = "hex"
    """Hexadecimal digits; the marker of an unavailable value is not in hex."""


class IntervalMode(StrEnum):
    """The connector's `interval.handling.mode`."""

    NUMERIC = "numeric"
    """Microseconds; a month counts as 30.4375 days."""
    STRING = "string"
    """An exact ISO 8601 text."""


class HstoreMode(StrEnum):
    """The connector's `hstore.handling.mode`."""

    JSON = "json"
    """A text with a JSON object."""
    MAP = "map"
    """A JSON object."""


@dataclass(frozen=True)
class ConnectorModes:
    """Settings of the connector that its events do not show."""

    decimals: Annotated[DecimalMode, Described("The connector's `decimal.handling.mode`.")] = (
        DecimalMode.PRECISE
    )
    times: Annotated[TimeMode, Described("The connector's `time.precision.mode`.")] = TimeMode.ADAPTIVE
    binary: Annotated[BinaryMode, Described("The connector's `binary.handling.mode`.")] = BinaryMode.BYTES
    intervals: Annotated[IntervalMode, Described("The connector's `interval.handling.mode`.")] = (
        IntervalMode.NUMERIC
    )
    hstore: Annotated[HstoreMode, Described("The connector's `hstore.handling.mode`.")] = HstoreMode.JSON
    placeholder: Annotated[
        str,
        Described("The connector's `unavailable.value.placeholder`, as it is set there, `hex:` included."),
    ] = DEFAULT_PLACEHOLDER

    def __post_init__(self) -> None:
        check_members(self, "connector.")
        if not self.placeholder:
            raise SettingError(
                "connector.placeholder", "is empty; write the text that is configured in the connector"
            )
        if self.placeholder.startswith("hex:"):
            try:
                bytes.fromhex(self.placeholder[4:])
            except ValueError as error:
                problem = f"must have pairs of hexadecimal digits after `hex:`, but is: {self.placeholder!r}"
                raise SettingError("connector.placeholder", problem) from error

    @property
    def placeholder_bytes(self) -> bytes:
        """The octets of the placeholder."""
        if self.placeholder.startswith("hex:"):
            return bytes.fromhex(self.placeholder[4:])
        return self.placeholder.encode()


PROPERTIES: Final[Mapping[str, str]] = {
    "decimals": "decimal.handling.mode",
    "times": "time.precision.mode",
    "binary": "binary.handling.mode",
    "intervals": "interval.handling.mode",
    "hstore": "hstore.handling.mode",
    "placeholder": "unavailable.value.placeholder",
}
"""The connector's property for each of its modes."""


def modes_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the modes in a connector's properties, by the names of `ConnectorModes`."""
    return {name: properties[key] for name, key in PROPERTIES.items() if key in properties}


def properties_of(modes: ConnectorModes) -> dict[str, str]:
    """Return the connector's properties for all modes that differ from its defaults."""
    usual = ConnectorModes()
    return {
        key: str(getattr(modes, name))
        for name, key in PROPERTIES.items()
        if getattr(modes, name) != getattr(usual, name)
    }
