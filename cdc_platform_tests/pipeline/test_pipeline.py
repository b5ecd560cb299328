"""Which source tables a pipeline materialises."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdc_platform.errors import SettingError
from cdc_platform.lake.settings import LakeSettings
from cdc_platform.model.column_versions import ColumnHistory
from cdc_platform.model.evolution import SchemaHistory
from cdc_platform.model.looks import Look
from cdc_platform.model.table_options import TableOptions
from cdc_platform.pipeline.evolve import find_exclusions
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.pipelines import make_pipeline, source_of

WATCHED = ("transfers", "accounts", "Accounts")


def choosing(folder: Path, *names: str) -> Pipeline:
    """Return a pipeline whose stream watches three tables, and that is told to take some of them."""
    schemas = [table(name, {"id": "INT64"}, {}) for name in WATCHED]
    pipeline = make_pipeline(LakeSettings(str(folder)), schemas)
    return replace(pipeline, settings=replace(pipeline.settings, tables=names or None))


def test_chosen_tables_are_sorted(tmp_path: Path) -> None:
    """The order in the file does not matter."""
    assert [found.name for found in choosing(tmp_path, *WATCHED[:2]).tables] == ["accounts", "transfers"]


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("accounts", "loans"), "has no column: 'loans'. It watches Accounts, accounts, transfers"),
        (WATCHED, "differ by case only.*'Accounts' and 'accounts'"),
        ((), "differ by case only.*'Accounts' and 'accounts'"),
    ],
)
def test_tables_that_cannot_be_had_are_refused(tmp_path: Path, names: tuple[str, ...], problem: str) -> None:
    """A table that the stream does not watch, and two that one catalog would take for one, are errors."""
    with pytest.raises(SettingError, match=problem):
        _ = choosing(tmp_path, *names).tables


def test_options_of_a_table_that_is_not_watched_yet_wait(tmp_path: Path) -> None:
    """A table that the source has may be watched later, and is told; one that it lacks is a mistake."""
    watched = table("accounts", {"id": "INT64"}, {})
    options = {"loans": TableOptions(history=True)}
    pipeline = make_pipeline(LakeSettings(str(tmp_path)), (watched,), options=options)
    source_of(pipeline).look_at = lambda micros: Look(micros, (watched,), {"loans": ("id",)}, {})
    assert [found.name for found in pipeline.tables] == ["accounts"]
    (told,) = find_exclusions(pipeline)
    assert "`loans` is not watched: its `table_options` count" in told
    pipeline.forget_tables()
    source_of(pipeline).look_at = None
    with pytest.raises(SettingError, match=r"`table_options` names a table that .*'loans'"):
        _ = pipeline.tables
    pipeline.know(
        SchemaHistory(tick=1, tables={"accounts": ColumnHistory("accounts")}, others=frozenset({"loans"}))
    )
    assert [found.name for found in pipeline.tables] == ["accounts"]


def test_a_key_that_no_lake_can_have_is_refused(tmp_path: Path) -> None:
    """The error names column and table, and the other tables go on once they are named."""
    tables = (table("odd", {"_pos": "INT64"}, {}), table("plain", {"id": "INT64"}, {}))
    pipeline = make_pipeline(LakeSettings(str(tmp_path)), tables)
    with pytest.raises(SettingError, match="`_pos` of `odd`"):
        _ = pipeline.tables
    chosen = replace(pipeline, settings=replace(pipeline.settings, tables=("plain",)))
    assert [found.name for found in chosen.tables] == ["plain"]


def test_a_table_that_takes_the_name_of_a_dropped_one_is_refused_with_what_helps(tmp_path: Path) -> None:
    """The last state of the dropped one stays in the lake, so the advice names which table goes elsewhere."""
    pipeline = choosing(tmp_path)
    dropped = ColumnHistory("accounts", is_watched=False, is_dropped=True)
    others = {name: ColumnHistory(name) for name in ("transfers", "Accounts")}
    pipeline.know(SchemaHistory(tick=1, tables={"accounts": dropped, **others}))
    advice = "dropped 'accounts'.*all tables but 'Accounts', and 'Accounts' in a pipeline of its own"
    with pytest.raises(SettingError, match=advice):
        _ = pipeline.tables
    told = replace(pipeline, settings=replace(pipeline.settings, tables=("accounts", "transfers")))
    told.know(pipeline.schema_history)
    assert [found.name for found in told.tables] == ["accounts", "transfers"]
