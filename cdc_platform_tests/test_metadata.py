"""Metadata in the UI and the log show names and values of the source, and no terminal obeys them."""

from pathlib import Path
from typing import Final

import dagster as dg
import pytest

from cdc_platform.components.loading import load_declared
from cdc_platform.errors import CdcError, RecordUnreadable, SettingError, SourceError
from cdc_platform.metadata import DASHBOARD_URL, describe_facts, visible
from cdc_platform_tests.control_characters import NASTY, SHOWN
from cdc_platform_tests.sources.datastream.datastream_server import STREAM
from cdc_platform_tests.yaml_files import TYPE, bank_attributes, write_defs

DATASTREAM: Final = "cdc_platform.components.datastream.DatastreamPipeline"


@pytest.mark.parametrize("kind", [CdcError, RecordUnreadable, SourceError])
def test_errors_hold_no_controls(kind: type[CdcError]) -> None:
    """Dagster logs an error's text itself, so the text of every error of ours is visible."""
    assert str(kind(f"{NASTY}\nnext")) == f"{SHOWN}\nnext"


def test_errors_of_settings_hold_no_controls() -> None:
    """Neither the name of a setting nor the problem brings them in."""
    assert str(SettingError(NASTY, NASTY)) == f"Setting `{SHOWN}` {SHOWN}"


def test_facts_of_checks_are_named_like_those_of_assets() -> None:
    """A plot's name is words, with the unit; texts are visible."""
    facts = describe_facts({"differing_rows": 2, "longest_s": 1.5, "cut": NASTY})
    assert facts == {"Differing rows": 2, "Longest (s)": 1.5, "Cut": SHOWN}


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
    shop = {"name": "shop", "source": {"path": "files", "stream": STREAM}, "lake": {"path": "lake"}}
    for number, (attributes, kind) in enumerate(
        ((bank_attributes(), TYPE), ({**shop, "tables": ["users"]}, DATASTREAM))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        [(name, pipeline)] = load_declared([write_defs(folder, attributes, kind)]).items()
        graph = pipeline.definitions().resolve_asset_graph()
        links = {key: graph.get(key).metadata.get("Status page") for key in graph.get_all_asset_keys()}
        link = None if address is None else dg.MetadataValue.url(f"{address}#{name}")
        assert links == dict.fromkeys(links, link)
        assert len(links) >= 7
