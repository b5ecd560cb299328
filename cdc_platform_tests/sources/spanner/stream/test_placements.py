"""Streams with a read function for each placement are refused."""

import pytest

from cdc_platform.errors import PartitionModeUnsupported
from cdc_platform.sources.spanner.stream.placements import check_placements


@pytest.mark.parametrize(
    "options", [{}, {"partition_mode": "MUTABLE_KEY_RANGE"}, {"per_placement_tvf": "false"}]
)
def test_other_options_pass(options: dict[str, str]) -> None:
    """Both partition modes are read, and a stream may say that it has no such functions."""
    check_placements(options, "stream")


def test_read_functions_of_placements_are_refused() -> None:
    """The error names the option and says what to do."""
    with pytest.raises(PartitionModeUnsupported, match=r"per_placement_tvf = true.*Create one without"):
        check_placements({"per_placement_tvf": "true"}, "stream")
