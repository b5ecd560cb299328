"""Metadata in the UI and the log show names and values of the source, and no terminal obeys them."""

from pathlib import Path

import dagster as dg
import pytest

from cdc_platform.components.loading import load_declared
from cdc_platform.errors import CdcError, RecordUnreadable, SettingError, SourceError
from cdc_platform.metadata import DASHBOARD_URL, visible
from cdc_platform_tests.control_characters import NASTY, SHOWN
from cdc_platform_tests.yaml_files import bank_attributes, write_defs


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


@pytest.mark.parametrize("address", ["http://127.0.0.1:3030/", None])
def test_every_asset_links_to_the_status_page(
    address: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the environment names the status page, each asset leads to its pipeline's part of it."""
    if address is None:
        monkeypatch.delenv(DASHBOARD_URL, raising=False)
    else:
        monkeypatch.setenv(DASHBOARD_URL, address)
    pipeline = load_declared([write_defs(tmp_path, bank_attributes())])["bank"]
    graph = pipeline.definitions().resolve_asset_graph()
    links = {
        key.to_user_string(): graph.get(key).metadata.get("Status page") for key in graph.get_all_asset_keys()
    }
    link = None if address is None else dg.MetadataValue.url(f"{address}#bank")
    assert links == dict.fromkeys(links, link)
    assert {"bank/accounts", "bank__cdc/source", "bank__cdc/cut"} <= links.keys()
