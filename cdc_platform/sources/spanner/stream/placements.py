"""Change streams with a read function for each placement, which this version cannot read."""

from collections.abc import Mapping

from cdc_platform.errors import PartitionModeUnsupported


def check_placements(options: Mapping[str, str], title: str) -> None:
    """Check the options of a stream.

    Raises:
        PartitionModeUnsupported: It has read functions for placements.
    """
    if options.get("per_placement_tvf", "").lower() == "true":
        raise PartitionModeUnsupported(
            f"The {title} has per_placement_tvf = true, a read function for each placement, which this "
            "version cannot read. Create one without this option, which is fixed at creation, and name it in "
            "`change_stream`",
        )
