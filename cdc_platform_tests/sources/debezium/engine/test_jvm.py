"""Java in the process of the embedded engine: the archive of its classes, and its threads."""

import ctypes
import signal
from pathlib import Path

import pytest

from cdc_platform.java.class_archive import CACHE_VARIABLE, is_complete
from cdc_platform.sources.debezium.engine.engine import NEXT_MARKER_AFTER_S
from cdc_platform.sources.debezium.engine.engine_process import EngineProcess
from cdc_platform_tests.servers.postgresql import Cluster
from cdc_platform_tests.sources.debezium.spooled import WITHIN_S, capture_until_caught_up
from cdc_platform_tests.support.debezium.databases import database, play, settings_for

pytestmark = pytest.mark.integration


def test_the_first_engine_archives_its_classes_and_the_next_one_maps_them(
    capturing: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one ends at a signal which the system gives to one of its other threads."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    settings = settings_for(capturing, "archived", tmp_path / "spool")
    with database(capturing, "archived") as name:
        play(capturing, name, ["CREATE TABLE t (id int PRIMARY KEY)"])
        capture_until_caught_up(settings, WITHIN_S)
        (archive,) = (tmp_path / "cache" / "cdc_platform").iterdir()
        assert is_complete(archive)
        with EngineProcess(settings) as engine:
            engine.wait_until_caught_up(WITHIN_S)
            process = Path(f"/proc/{engine.pid}")
            if not process.exists():
                pytest.skip("This system does not state what a process has mapped.")
            assert str(archive) in (process / "maps").read_text(encoding="utf-8")
            other = max(int(folder.name) for folder in (process / "task").iterdir())
            ctypes.CDLL(None).tgkill(engine.pid, other, signal.SIGTERM)
            engine.wait(NEXT_MARKER_AFTER_S * 0.8)
