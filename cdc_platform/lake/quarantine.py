"""What lies in quarantine: records that could not enter the log, with their whole transactions."""

from pyiceberg.expressions import AlwaysTrue, BooleanExpression, Or

from cdc_platform.lake.commits import count_rows, head
from cdc_platform.lake.filters import equals
from cdc_platform.lake.lake import QUARANTINED, Lake


def count_quarantined(lake: Lake, table: str | None = None) -> int:
    """Return how many records lie in quarantine, of one source table or of all."""
    return len(_record_ids(lake, AlwaysTrue() if table is None else equals("table_name", table)))


def may_lack_changes(lake: Lake, table: str) -> bool:
    """Whether a change of a source table lies in quarantine, or may: a record can lack its table's name."""
    return bool(_record_ids(lake, Or(equals("table_name", table), equals("table_name", None))))


def _record_ids(lake: Lake, condition: BooleanExpression) -> set[str]:
    quarantine = lake.system_table(QUARANTINED)
    # Every tick asks, and mostly nothing is there.
    if count_rows(head(quarantine)) == 0:
        return set()
    # The table has a row for each mod of a record.
    rows = quarantine.scan(condition, selected_fields=("record_id",)).to_arrow()
    return set(rows["record_id"].to_pylist())
