"""The table of deaths, also from results of before some of its columns."""

import json
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks.crash_points import load_results, print_table
from benchmarks.measure.harness import Report

OPTIONS = {"seed": 1, "singly": 35, "failing": None, "overtaken": None}


def test_results_of_an_older_version_are_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Columns that they lack count as nothing, and kinds that no longer exist are left out."""
    report = Report("crash_points", Namespace(work=tmp_path, out=None, **OPTIONS))
    old = {
        "value": 4,
        "moments": 9,
        "wrong": 1,
        "facts": {name: OPTIONS[name] for name in ("seed", "singly")},
    }
    lines = [{"what": kind, **old} for kind in ("spanner: copy", "spanner: removed")]
    report.path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    report.note("datastream: history", 7, "deaths", moments=7, pairs=0, wrong=0, median_s=2.0, longest_s=3.0)

    results = load_results(report)

    assert [*results] == ["spanner: copy", "datastream: history"]
    assert print_table(results) == 1
    shown = capsys.readouterr().out
    assert "| copy | 4 of 9 |  |\n| history |  | 7 |\n11 deaths" in shown
    assert "recoveries: 2.0 to 2.0 s" in shown
