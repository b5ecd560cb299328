"""Metadata in the UI and the log show names and values of the source, and no terminal obeys them."""

import dagster as dg
import pytest

from cdc_platform.errors import CdcError, RecordUnreadable, SettingError, SourceError
from cdc_platform.metadata import visible
from cdc_platform_tests.control_characters import NASTY, SHOWN


@pytest.mark.parametrize("kind", [CdcError, RecordUnreadable, SourceError])
def test_errors_hold_no_controls(kind: type[CdcError]) -> None:
    """Dagster logs an error's text itself, so the text of every error of ours is visible."""
    assert str(kind(f"{NASTY}\nnext")) == f"{SHOWN}\nnext"


def test_errors_of_settings_hold_no_controls() -> None:
    """Neither the name of a setting nor the problem brings them in."""
    assert str(SettingError(NASTY, NASTY)) == f"Setting `{SHOWN}` {SHOWN}"


def test_metadata_holds_no_controls() -> None:
    """Texts are visible in each kind of metadata; numbers and keys stay."""
    table = dg.MetadataValue.table([dg.TableRecord({"name": NASTY, "rows": 1})])
    metadata = visible({"text": NASTY, "note": dg.MetadataValue.md(NASTY), "table": table, "rows": 5})
    assert (metadata["text"], metadata["note"].md_str, metadata["rows"]) == (SHOWN, SHOWN, 5)
    assert [record.data for record in metadata["table"].records] == [{"name": SHOWN, "rows": 1}]
    assert metadata["table"].schema == table.schema
