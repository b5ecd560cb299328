"""Places where pipelines are declared, by name."""

from typing import Final

PLACE_VARIABLE: Final = "CDC_PLATFORM_DEFS"
"""Environment variable that names a pipeline's YAML file, or a folder with such files."""
FILE_NAMES: Final = ("defs.yaml", "defs.yml")
"""Files of components, in the order in which Dagster looks for them in a folder."""
