"""Cycles that end between any two of their commits: nothing of Datastream's files is lost or doubled."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.pipeline import cycle
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.pipeline.ordering import log_commit
from cdc_platform_tests.support.cycles import failed_checks, found_rows, sync
from cdc_platform_tests.support.datastream.files import MadeEvent, StreamFolder, end_state
from cdc_platform_tests.support.datastream.pipelines import make_pipeline, user
from cdc_platform_tests.support.pipelines import log_rows, quarantined_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


class Killed(BaseException):
    """The process ends here."""


STEPS: Final[list[tuple[ModuleType, str]]] = [
    (cycle, "read_generations"),  # the raw records are committed, and nothing else
    (log_commit, "_set_aside"),  # quarantine and deletion markers, too, but not the log
    (cycle, "order_changes"),
    (cycle, "merge_tables"),
    (cycle, "extend_histories"),
    (cycle, "publish_cut"),
]


def fatal(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step that is done, and after which the process ends."""

    def run(*args: Any, **named: Any) -> None:
        step(*args, **named)
        raise Killed

    return run


def test_a_kill_after_each_commit_changes_nothing(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each cycle is killed at another place, while late, repeated and broken events come; all ends right."""
    folder = StreamFolder(tmp_path)
    pipeline = make_pipeline(session_lake, tmp_path, {"users": TableOptions(history=True)})
    events: list[MadeEvent] = []
    for number, (module, name) in enumerate(STEPS):
        position = 100 - number if number % 2 else 100 + number
        events += [
            user(f"a{number}", "INSERT", 10 + number, number),
            user(f"b{number}", "UPDATE-INSERT", position, 99),
            user(f"c{number}", "DELETE", position, 50 + number % 2),
        ]
        folder.write(events[-5:])
        folder.put(folder.path / f"shop_users/2027/01/15/08/00/bad{number}.jsonl", b'{"uuid": \n')
        with monkeypatch.context() as patched:
            patched.setattr(module, name, fatal(getattr(module, name)))
            with pytest.raises(Killed):
                run_cycle(open_pipeline(pipeline.settings), spark)
    pipeline = sync(pipeline, spark)
    expected = sorted(end_state(events).values(), key=lambda row: int(row["id"]))
    assert expected == found_rows(pipeline, "users")
    logged = Counter(row["record_id"] for row in log_rows(pipeline))
    assert {event.record_id: 1 for event in events} == logged
    assert len(STEPS) == len(quarantined_rows(pipeline))
    assert failed_checks(pipeline, spark) == {}
