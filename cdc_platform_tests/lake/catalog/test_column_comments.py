"""Descriptions of the platform's own columns, as the UI shows them."""

from enum import StrEnum

import pytest

from cdc_platform.lake.catalog.column_comments import COLUMN_COMMENTS
from cdc_platform.model.base.stored_names import LINEAGE, LOG, RAW
from cdc_platform.model.stream.lineage import PartitionState
from cdc_platform.model.stream.records import ChangeKind, RecordKind


@pytest.mark.parametrize(
    ("table", "column", "kind"),
    [
        (RAW, "kind", RecordKind),
        (LINEAGE, "state", PartitionState),
        (LOG, "change_kind", ChangeKind),
    ],
)
def test_a_description_lists_every_value(table: str, column: str, kind: type[StrEnum]) -> None:
    """A column whose values are of a closed list names each of them."""
    named = COLUMN_COMMENTS[table][column].replace(",", " ").replace(".", " ").split()
    assert set(kind) <= set(named)
