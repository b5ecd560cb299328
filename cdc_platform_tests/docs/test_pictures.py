"""The pictures of the pages come from the script that takes them from a demo."""

import runpy
import struct
from typing import Any, Final

import pytest

from cdc_platform_tests.docs.code_blocks import ROOT

DOCS: Final = ROOT / "docs"
SCRIPT: Final[dict[str, Any]] = runpy.run_path(str(DOCS / "screenshots.py"))


def size_of(name: str) -> tuple[int, ...]:
    """Return the width and height of a picture, as its header has them."""
    return struct.unpack(">II", (DOCS / f"{name}.png").read_bytes()[16:24])


def test_every_picture_is_one_of_the_script() -> None:
    """The script takes each picture of the pages, in the size that it has."""
    taken = {shot.name: shot.size for shot in SCRIPT["SHOTS"]}
    assert taken == {picture.stem: size_of(picture.stem) for picture in DOCS.glob("*.png")}


PRINTED: Final = (
    "Status page: http://127.0.0.1:3030\n",
    "Dagster's UI: http://127.0.0.1:3000   (logs: demo/logs)\n",
    "12:00:00  watermark 12:00:00.000  cut 3  rows 1\n",
    "12:00:02  watermark 12:00:02.000  cut 12  rows 2\n",
)


def test_the_script_waits_for_cuts_and_has_both_addresses() -> None:
    """Pictures are taken of a demo that has something to show; one that ends before is an error."""
    pages = SCRIPT["find_pages"](iter(PRINTED))
    assert (pages.status_page, pages.dagster) == ("http://127.0.0.1:3030", "http://127.0.0.1:3000")
    with pytest.raises(SystemExit):
        SCRIPT["find_pages"](iter(PRINTED[:3]))
