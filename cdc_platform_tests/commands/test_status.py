"""`cdc-platform status` as people and scripts read it."""

import json
import subprocess
import sys
from pathlib import Path

from cdc_platform_tests.commands.invoking import begin, run
from cdc_platform_tests.yaml_files import bank_attributes, write_defs


def test_status_of_a_new_pipeline(tmp_path: Path) -> None:
    """A pipeline that has published nothing has a status, although nobody answers at the source."""
    code, output, _ = run("status", begin(write_defs(tmp_path)))
    assert code == 0
    assert "none yet" in output
    assert "0 live, 0 waiting, 0 finished" in output


def test_status_as_json(tmp_path: Path) -> None:
    """`--json` prints one JSON object with everything in it."""
    _, output, _ = run("status", begin(write_defs(tmp_path)), "--json")
    found = json.loads(output)
    assert (found["pipeline"], found["tick"], found["cut"], found["tables"]) == ("bank", 0, None, {})


def test_status_starts_no_spark(tmp_path: Path) -> None:
    """The status needs neither pyspark nor a JVM."""
    arguments = ["status", str(begin(write_defs(tmp_path)))]
    code = f"import sys; from cdc_platform.cli import main; main({arguments!r}, standalone_mode=False); "
    code += "print('pyspark' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "False"


def test_a_pipeline_of_several_is_chosen_by_name(tmp_path: Path) -> None:
    """A file of two documents needs `--name`; the message says so, and the option does it."""
    first = begin(write_defs(tmp_path)).read_text(encoding="utf-8")
    second = write_defs(tmp_path, bank_attributes(name="shop"))
    second.write_text(f"{first}---\n{second.read_text(encoding='utf-8')}", encoding="utf-8")
    code, _, errors = run("status", second)
    assert (code, "`--name`: `bank`, `shop`" in errors) == (1, True)
    code, output, _ = run("status", second, "--name", "bank")
    assert (code, output.startswith("pipeline    bank,")) == (0, True)
