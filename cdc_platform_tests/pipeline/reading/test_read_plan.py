"""The plan of a cycle's reads, of a process that another one may have overtaken."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cdc_platform.errors import OffsetsLost
from cdc_platform.model.stream.lineage import Lineage
from cdc_platform.model.stream.read_windows import ReadPlan, ReadRequest
from cdc_platform.pipeline.reading.read_plan import plan_reads
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform.sources.debezium.files.source import DebeziumSource
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput
from cdc_platform.sources.debezium.transactions.progress import FileProgress


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[tuple[DebeziumSource, Path, Path]]:
    """Yield the source of a spool with two files, and both; the first one was deleted."""
    settings = EngineInput("host", "database", "user", str(tmp_path / "spool"))
    # The engine finds the spool locked, as if another program captured into it.
    with Spool(tmp_path / "spool").open_writer(settings.identity()) as writer:
        first, second = (writer.write([""] * size, 0) for size in (2, 1))
        first.unlink()
        source = DebeziumSource(DebeziumSettings(settings))
        yield source, first, second
        source.close()


def test_what_another_process_has_read_is_not_lost(spool: tuple[DebeziumSource, Path, Path]) -> None:
    """A process that paused after it had loaded its progress loads it again, and continues from there."""
    source, first, second = spool
    newer = {str(first): FileProgress("version", lines=2).to_text()}
    progress = iter([{}, newer, newer])
    plan = _plan(source, progress)
    assert isinstance(plan.inputs, dict)
    assert [str(second)] == [file.path for file in plan.inputs["files"]]


def test_what_no_process_has_read_is_lost(spool: tuple[DebeziumSource, Path, Path]) -> None:
    """Progress that is still the same is no reason to look again."""
    progress: Iterator[Mapping[str, str]] = iter([{}, {}])
    with pytest.raises(OffsetsLost, match="lacks those from number 0 to 1"):
        _plan(spool[0], progress)
    assert list(progress) == []


def _plan(source: DebeziumSource, progress: Iterator[Mapping[str, str]]) -> ReadPlan:
    return plan_reads(source, Lineage({}, 0), ReadRequest(1), lambda: next(progress))
