"""States of cuts that are pinned: whole, or in part."""

import json
from pathlib import Path

import pyarrow as pa

from cdc_platform.commands.reading.cuts import SHOWN
from cdc_platform.components.loading import load_settings
from cdc_platform.lake.state.cut_states import cut_state, tag_name
from cdc_platform.lake.state.cuts import Cut, append_cut, find_cut
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform_tests.commands.invoking import begin, run
from cdc_platform_tests.yaml_files import write_defs


def test_a_cut_of_which_a_table_is_dropped_is_pinned_in_part(tmp_path: Path) -> None:
    """It stays in the list, where its number is found, until the other tables are unpinned."""
    defs = begin(write_defs(tmp_path))
    lake, snapshots = open_pipeline(load_settings(defs)).lake, dict[str, int]()
    for name in ("accounts", "transfers"):
        table = lake.catalog.create_table(f"bank.{name}", pa.schema([("id", pa.int64())]))
        table.append(pa.table({"id": [1]}))
        snapshots[name] = table.metadata.snapshots[-1].snapshot_id
        table.manage_snapshots().create_tag(snapshots[name], tag_name(1)).commit()
    for number in range(1, SHOWN + 3):
        append_cut(lake, Cut(number, number, number, snapshots, number))
    assert cut_state(lake, find_cut(lake, 1)).is_pinned
    assert not cut_state(lake, find_cut(lake, 2)).tagged_tables
    lake.catalog.drop_table("bank.transfers")
    state = cut_state(lake, find_cut(lake, 1))
    assert (state.is_pinned, state.tagged_tables, state.expired) == (False, ("accounts",), ("transfers",))
    listed = json.loads(run("cuts", defs, "--json")[1])
    assert [1, *range(3, SHOWN + 3)] == [row["cut"] for row in listed]
    assert (listed[0]["pinned"], listed[0]["pinned_tables"]) == (False, ["accounts"])
    assert run("cuts", defs)[1].count("partly") == 1
