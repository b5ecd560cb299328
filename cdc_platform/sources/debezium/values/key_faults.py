"""Keys that the lake cannot have: of columns that are ignored, or whose values do not arrive whole."""

from collections.abc import Mapping
from typing import Any, Final

from cdc_platform.sources.debezium.settings.connector import ConnectorModes, DecimalMode, TimeMode
from cdc_platform.sources.debezium.values.postgres_types import PostgresType

_CLOCKS: Final = frozenset({"time", "timestamp"})
_MILLIS: Final = frozenset({"org.apache.kafka.connect.data.Time", "org.apache.kafka.connect.data.Timestamp"})
"""Logical names of a schema block whose values have three digits of a second, for all columns."""
_MAX_CLOCK_DIGITS: Final = 6
_MILLI_DIGITS: Final = 3
_DOUBLE_DIGITS: Final = 15
"""Digits of a decimal that a double keeps."""
_DECIMALS: Final = frozenset({"numeric", "money"})
_LOSSES: Final = {"name": "its value, except in snapshots", "varbit": "its leading zeros"}
_OTHER_KEY: Final = (
    "Have the connector take other columns as the key (`message.key.columns`), or leave the table out"
)


def key_fault(
    field: Mapping[str, Any] | None,
    known_type: PostgresType | None,
    modes: ConnectorModes,
    *,
    is_ignored: bool,
) -> str | None:
    """Return why a column cannot be part of a key, as the end of a sentence that begins with the column.

    Args:
        field: the column's field of the schema block.
        known_type: its declared or propagated type.
        modes: modes of the connector in the settings, which count without a block.
        is_ignored: whether the settings ignore the column.
    """
    if is_ignored:
        return (
            "is part of its key, so it cannot be in `ignored_columns`. If the transform ByLogicalTableRouter "
            "adds it to keys, set its `key.enforce.uniqueness` to `false`"
        )
    loss = _loss(field, known_type, modes)
    return loss and (
        f"is part of its key, and arrives without {loss}. Two rows may otherwise have one key, and one of "
        "them would replace the other"
    )


def _loss(
    field: Mapping[str, Any] | None, known_type: PostgresType | None, modes: ConnectorModes
) -> str | None:
    """Return what values of a key column lack when they arrive, and what to do; None if they lack nothing."""
    if known_type is not None and known_type.element is not None:
        return _loss_of_elements(field, known_type.element, modes)
    name = known_type.name if known_type is not None else ""
    if name in _LOSSES:
        return f"{_LOSSES[name]}. {_OTHER_KEY}"
    sizes = known_type.sizes if known_type is not None else ()
    if _is_in_millis(field, name, modes) and (sizes or (_MAX_CLOCK_DIGITS,))[0] > _MILLI_DIGITS:
        return (
            "the digits of a second after the third. Set the connector's `time.precision.mode` to "
            "`adaptive`, or declare the column in `columns`, as `timestamp(3)`, if no value has more digits"
        )
    is_double = modes.decimals is DecimalMode.DOUBLE if field is None else field["type"] == "double"
    is_exact = name == "numeric" and bool(sizes) and sizes[0] <= _DOUBLE_DIGITS
    if name in _DECIMALS and is_double and not is_exact:
        return "digits after the fifteenth. Set the connector's `decimal.handling.mode` to `string`"
    return None


def _loss_of_elements(
    field: Mapping[str, Any] | None, element: PostgresType, modes: ConnectorModes
) -> str | None:
    if element.name == "time":
        return f"the digits of a second after the third. {_OTHER_KEY}"
    items = field.get("items") if field is not None else None
    return _loss(items if isinstance(items, dict) else None, element, modes)


def _is_in_millis(field: Mapping[str, Any] | None, name: str, modes: ConnectorModes) -> bool:
    if field is None:
        return name in _CLOCKS and modes.times is TimeMode.CONNECT
    return field.get("name") in _MILLIS
