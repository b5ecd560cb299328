"""Metadata in the UI and the log show names and values of the source, and no terminal obeys them."""

import dagster as dg
import pytest

from cdc_platform.errors import CdcError, RecordUnreadable, SettingError, SourceError
from cdc_platform.metadata import DASHBOARD_URL, status_page, visible
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


def test_a_cut_links_to_the_status_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the environment names the status page, a pipeline's link leads to its part of it."""
    monkeypatch.delenv(DASHBOARD_URL, raising=False)
    assert status_page("bank") is None
    monkeypatch.setenv(DASHBOARD_URL, "http://127.0.0.1:3030/")
    link = status_page("bank")
    assert link is not None
    assert link.url == "http://127.0.0.1:3030/#bank"
