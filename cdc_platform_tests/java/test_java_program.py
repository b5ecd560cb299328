"""Finding Java, with a script on the PATH that plays it."""

from pathlib import Path

import pytest

from cdc_platform.errors import JavaMissing
from cdc_platform.java.java_program import check_java


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only what a test puts into the folder is on the PATH."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()


def put_java(folder: Path, answer: str, exit_code: int = 0) -> None:
    """Write a program that answers like `java -version`, which uses the error stream."""
    program = folder / "bin" / "java"
    program.parent.mkdir(exist_ok=True, parents=True)
    program.write_text(f"#!/bin/sh\necho '{answer}' >&2\nexit {exit_code}\n", encoding="utf-8")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),  # the oldest that will do
        ('java version "21" 2023-09-19 LTS', 21),  # without a minor version
        ('openjdk version "25-ea" 2025-09-16', 25),  # early access
    ],
)
def test_a_java_that_fits_is_found(tmp_path: Path, answer: str, expected: int) -> None:
    """The major version is read from every form that vendors write."""
    put_java(tmp_path, answer)
    assert expected == check_java()


def test_java_home_wins_over_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's launcher does the same."""
    put_java(tmp_path, 'openjdk version "17.0.1"')
    put_java(tmp_path / "home", 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert check_java() == 21


@pytest.mark.parametrize(
    ("answer", "exit_code", "problem"),
    [
        ('java version "1.8.0_392"', 0, "Java 8 is too old"),  # the old way of counting
        ('openjdk version "11.0.21" 2023-10-17', 0, "Java 11 is too old"),
        ("The operation could not be completed.", 1, "Java does not run"),  # a stub without a Java
        ("nothing with a version", 0, "Java does not report a version"),
    ],
)
def test_a_java_that_does_not_fit_is_an_error(
    tmp_path: Path, answer: str, exit_code: int, problem: str
) -> None:
    """The error says what was found and what to install instead."""
    put_java(tmp_path, answer, exit_code)
    with pytest.raises(JavaMissing, match=problem) as caught:
        check_java()
    assert "apt-get install openjdk-17-jre-headless" in str(caught.value)


@pytest.mark.parametrize("home", [None, "nowhere"])
def test_a_missing_java_is_an_error(
    home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says where it was looked for, and the ways to get one."""
    place = "on the PATH"
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / home))
        place = f"in JAVA_HOME, which is {tmp_path / home} "
    with pytest.raises(JavaMissing, match=f"No Java was found {place}.*spark.remote"):
        check_java()
