"""The code location: all that lies in the folder `defs`."""

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """Return the assets, checks, jobs and sensors."""
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
