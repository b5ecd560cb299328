"""Templates of the setting `table_name`, which name the tables of events in the lake."""

from string import Formatter
from typing import Final

from cdc_platform.errors import SettingError

_PARTS: Final = frozenset({"database", "schema", "table"})


def check_table_name(template: str) -> None:
    """Reject a template that cannot produce a table name, or that formats its parts."""
    try:
        fields = [field for field in Formatter().parse(template) if field[1] is not None]
    except ValueError:
        fields = []
    parts = {f"{name}{form}{conversion or ''}" for _, name, form, conversion in fields}
    if "table" not in parts or not parts <= _PARTS:
        raise SettingError(
            "table_name",
            "must contain {table}, and may contain {schema} and {database}, as in {schema}.{table}, "
            f"but is: {template!r}",
        )
