"""Jars of programs that tests run, fetched by the Ivy that comes with Spark."""

import fcntl
import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Final

import pyspark
import pytest

from cdc_platform_tests.java_options import SHORT_LIVED

MODULE: Final = """<ivy-module version="2.0">
<info organisation="cdc_platform" module="tests"/>
<configurations><conf name="default"/></configurations>
<dependencies>{}</dependencies>
</ivy-module>"""
ONLY_JARS: Final = ("-Divy.maven.lookup.sources=false", "-Divy.maven.lookup.javadoc=false")
"""Resolving optional dependencies takes ten times as long as the jars."""
FETCHED_WITHIN_S: Final = 600.0


def fetch_jars(
    packages: Sequence[str], *, with_dependencies: bool, without: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the jars of packages, from the cache that Spark's packages are in, or fetched into it.

    Args:
        packages: `GROUP:NAME:VERSION` of each.
        with_dependencies: whether what they depend on is needed, too.
        without: names of dependencies that are left out.
    """
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    configuration = "default->default" if with_dependencies else "default->master"
    lines = [
        '<dependency org="{}" name="{}" rev="{}" conf="{}"/>'.format(*package.split(":"), configuration)
        for package in packages
    ]
    lines += [f'<exclude module="{name}"/>' for name in without]
    with TemporaryDirectory() as folder:
        module, classpath = Path(folder) / "ivy.xml", Path(folder) / "classpath"
        module.write_text(MODULE.format("".join(lines)), encoding="utf-8")
        command = ["java", *SHORT_LIVED.split(), *ONLY_JARS, "-jar", str(ivy), "-error", "-ivy", str(module)]
        command += ["-cachepath", str(classpath), "-cache", str(Path.home() / ".ivy2.5.2" / "cache")]
        # Two at a time would write the same files.
        with (Path(gettempdir()) / f"cdc_platform_tests-{os.getuid()}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            subprocess.run(
                command, check=True, capture_output=True, timeout=FETCHED_WITHIN_S, stdin=subprocess.DEVNULL
            )
        jars = classpath.read_text(encoding="utf-8").strip().split(os.pathsep)
    assert len(jars) >= len(packages), f"not all of {packages} could be fetched: {jars}"
    return tuple(jars)


@cache
def require_jars(
    *packages: str, with_dependencies: bool = False, without: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the jars of packages: skip where they cannot be had on a laptop, fail in CI."""
    try:
        return fetch_jars(packages, with_dependencies=with_dependencies, without=without)
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"jars of {packages} cannot be fetched: {error}")
