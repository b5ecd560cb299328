"""Secret properties reach Spark by a file, which is gone when Spark runs."""

import os
import shlex
from pathlib import Path

import pytest

from cdc_platform.errors import SettingError
from cdc_platform.spark.launch.properties import OPTION, SUBMIT_ARGUMENTS, started_with, write_properties


def test_a_file_of_properties_is_ours_alone(tmp_path: Path) -> None:
    """Only the user may read it, even if it replaces another one; special characters are escaped."""
    path = tmp_path / "spark.conf"
    path.touch(mode=0o644)
    write_properties(path, {"a.b": " #x=y:\\z\n"})
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text(encoding="utf-8") == "a.b=\\ \\#x\\=y\\:\\\\z\\n\n"


@pytest.mark.parametrize("arguments", [None, "--verbose pyspark-shell"])
def test_spark_is_started_with_a_file(monkeypatch: pytest.MonkeyPatch, arguments: str | None) -> None:
    """Options for the launcher in the environment stay and are restored afterwards; the file is gone."""
    monkeypatch.delenv(SUBMIT_ARGUMENTS, raising=False)
    if arguments is not None:
        monkeypatch.setenv(SUBMIT_ARGUMENTS, arguments)
    with started_with({"a.password": "x"}):
        option, name, *others = shlex.split(os.environ[SUBMIT_ARGUMENTS])
        assert option == OPTION
        assert Path(name).read_text(encoding="utf-8") == "a.password=x\n"
        assert ["--load-spark-defaults", *(arguments or "pyspark-shell").split()] == others
    assert not Path(name).exists()
    assert arguments == os.environ.get(SUBMIT_ARGUMENTS)


def test_without_secrets_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own file does not matter then."""
    monkeypatch.setenv(SUBMIT_ARGUMENTS, f"{OPTION} my.conf pyspark-shell")
    with started_with({}):
        assert os.environ[SUBMIT_ARGUMENTS] == f"{OPTION} my.conf pyspark-shell"


def test_a_second_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark takes one file only; the error names what belongs there, and not its value."""
    monkeypatch.setenv(SUBMIT_ARGUMENTS, f"{OPTION} my.conf pyspark-shell")
    with (
        pytest.raises(SettingError, match=r"put them there: a\.password$"),
        started_with({"a.password": "xyz"}),
    ):
        raise AssertionError("It was started")
