"""Debezium's events in files, as the pipeline sees them."""

from pathlib import Path

import pytest

from cdc_platform.errors import SourceNotFound
from cdc_platform.sources.debezium.files.source import DebeziumSource
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput


def test_a_spool_that_its_engine_has_not_made_yet_holds_nothing(tmp_path: Path) -> None:
    """A new pipeline asks for its tables before the engine has started, and gets none."""
    place = EngineInput("host", "database", "user", str(tmp_path / "spool"))
    assert DebeziumSource(DebeziumSettings(place)).list_tables() == ()


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """Files of other writers are in an existing folder; a wrong path must not look empty."""
    source = DebeziumSource(DebeziumSettings(FilesInput(str(tmp_path / "nowhere"))))
    with pytest.raises(SourceNotFound, match="nowhere"):
        source.list_tables()
