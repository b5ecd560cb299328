"""Markers belong to the first cut that has everything before them, and are shown with it."""

from cdc_platform.commands.reading.cuts import as_dict, describe_cuts
from cdc_platform.lake.state.cut_states import CutState
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.lake.state.markers import Marker, markers_of
from cdc_platform.printing.tables import as_text


def test_markers_are_listed_with_the_first_cut_that_has_them() -> None:
    """A cycle without its own cut counts towards the next cut; cycles that no cut has yet are not counted."""
    cuts = tuple(Cut(number, number * 1_000_000, cycle, {}, 0) for number, cycle in ((1, 2), (2, 5)))
    markers = tuple(
        Marker("batch", f"of {cycle}", cycle, None, cycle, f"{cycle:04d}") for cycle in (1, 2, 4, 6)
    )
    by_cut = markers_of(cuts, markers)
    assert {number: [marker.cycle for marker in cut_markers] for number, cut_markers in by_cut.items()} == {
        1: [1, 2],
        2: [4],
    }
    states = [CutState(cut, ()) for cut in cuts]
    lines = [line.strip() for line in as_text(describe_cuts(states, 0.0, by_cut)).splitlines()]
    assert lines[2:4] == ["batch: of 1", "batch: of 2"]
    assert lines[5:] == ["batch: of 4"]
    assert as_dict(states[1], by_cut)["markers"] == [{"prefix": "batch", "content": "of 4", "lsn": 4}]
    assert as_dict(states[1])["markers"] == []
