"""This package as an archive for workers on other machines."""

import atexit
import shutil
import tempfile
import zipfile
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE: Final = Path(__file__).parents[2]
EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""Time of every file in the archive, so that equal content is an equal archive."""


def ship_package(spark: "SparkSession") -> None:
    """Send this package to the workers of a session, so that they run the driver's version.

    The libraries that it imports must already be installed there.
    """
    spark.addArtifacts(str(package_archive()), pyfile=True)


@cache
def package_archive() -> Path:
    """Return an archive of this package, named by its content; its folder is deleted at the process's end."""
    folder = Path(tempfile.mkdtemp(prefix="cdc_platform-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    files = sorted(path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    content = {path.relative_to(PACKAGE.parent).as_posix(): path.read_bytes() for path in files}
    digest = sha256(repr(content).encode()).hexdigest()[:12]
    archive = folder / f"{PACKAGE.name}-{digest}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in content.items():
            target.writestr(zipfile.ZipInfo(name, EPOCH), data, zipfile.ZIP_DEFLATED)
    return archive
