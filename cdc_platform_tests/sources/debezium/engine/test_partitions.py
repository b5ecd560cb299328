"""Partitions that are not captured under the name of their table are refused before the engine starts."""

import re

import pytest

from cdc_platform.errors import ReplicationRefused, SettingError
from cdc_platform.sources.debezium.engine.partitions import Partition, check_partitions
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput

OWN_NAMES = "SET (publish_via_partition_root = true)"


def check(
    *tables: str, mode: str = "disabled", is_published: bool = False, joins_partitions: bool = True
) -> None:
    """Check the partition `s.p1` of `s.p`."""
    properties = {"publication.autocreate.mode": mode}
    settings = EngineInput(spool="s", host="h", database="d", user="u", tables=tables, properties=properties)
    check_partitions(settings, [Partition("s.p1", "s.p", is_published)], joins_partitions=joins_partitions)


@pytest.mark.parametrize("is_published", [True, False])
@pytest.mark.parametrize("joins_partitions", [True, False])
def test_a_partition_without_its_table_is_a_wrong_setting(is_published: bool, joins_partitions: bool) -> None:
    """No change of the publication can help; the message names the table."""
    with pytest.raises(SettingError, match=r"`input.engine.tables` .*`s\.p1`.* name `s\.p`"):
        check("s[.]p1", "s[.]t", is_published=is_published, joins_partitions=joins_partitions)


@pytest.mark.parametrize("tables", [(), ("s[.]p",), ("s[.]p.*",)])
@pytest.mark.parametrize(
    ("mode", "is_published", "joins_partitions", "change"),
    [
        ("disabled", True, False, OWN_NAMES),
        ("all_tables", True, False, OWN_NAMES),
        ("filtered", True, False, OWN_NAMES),
        # the connector adds the table to its publication, which then sends the partitions
        ("filtered", False, False, OWN_NAMES),
        # the owner published the partition alone
        ("disabled", True, True, "ADD TABLE s.p"),
    ],
)
def test_a_partition_under_its_own_name_is_refused(
    tables: tuple[str, ...], mode: str, is_published: bool, joins_partitions: bool, change: str
) -> None:
    """The message has the statement that changes the publication."""
    with pytest.raises(ReplicationRefused, match=re.escape(f"`ALTER PUBLICATION cdc_platform {change}`")):
        check(*tables, mode=mode, is_published=is_published, joins_partitions=joins_partitions)


@pytest.mark.parametrize(
    ("tables", "mode", "is_published", "joins_partitions"),
    [
        (("s[.]t",), "disabled", True, False),
        (("s[.]t",), "filtered", False, False),
        (("s[.]p",), "disabled", False, False),
        # the connector replaces the partition by its table
        (("s[.]p",), "filtered", True, True),
        ((), "disabled", False, True),
    ],
)
def test_other_partitions_are_not_refused(
    tables: tuple[str, ...], mode: str, is_published: bool, joins_partitions: bool
) -> None:
    """Those of tables that are not captured, or that are sent under their table's name."""
    check(*tables, mode=mode, is_published=is_published, joins_partitions=joins_partitions)
