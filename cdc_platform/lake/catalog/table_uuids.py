"""The UUIDs of the platform's own tables, which show that another program has replaced one.

A table that is dropped and created again has another identifier. Two of the tables have the identifiers of
all, so that each of the two is in the other one.
"""

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from cdc_platform.errors import LakeDamaged
from cdc_platform.lake.catalog.damage import load_stored, require_present
from cdc_platform.model.base.stored_names import CHECK_RESULTS, CYCLE, LOG, RAW
from cdc_platform.model.base.stored_texts import parse_stored, read_stored

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

UUIDS_PROPERTY: Final = "cdc.table-uuids"
"""Property of the raw records and of the log: the identifiers of all own tables by name, as JSON."""
KEEPERS: Final = (LOG, RAW)
"""Loaded in this order: another process may commit to both meanwhile, to the raw records first."""


def require_keepers(
    catalog: "Catalog", namespace: str, keepers: Mapping[str, "Table"], table_names: Collection[str]
) -> None:
    """Ensure that both keepers are of one lake, which has the tables whose UUIDs they store.

    Raises:
        LakeDamaged: another program has dropped one of the tables; or the raw records have no commit, and the
            log has one of a cycle.
    """
    if any(map(_is_of_cycle, keepers[LOG].metadata.snapshots)) and not keepers[RAW].metadata.snapshots:
        raise LakeDamaged.replaced(f"{namespace}.{RAW}")
    names = {name for keeper, table in keepers.items() for name in _stored_uuids(table, keeper)}
    require_present(catalog, namespace, names.difference(table_names))


def require_uuids(
    namespace: str, tables: Mapping[str, "Table"], new_names: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Ensure that tables are those that the platform has created, and return their UUIDs by name.

    Args:
        namespace: that of the platform's own tables.
        tables: some of them by name; UUIDs are stored in the `KEEPERS`.
        new_names: those of them that this process has created just now.

    Raises:
        LakeDamaged: another program has replaced one of them.
    """
    uuids: dict[str, str] = {}
    for keeper in KEEPERS:
        stored_uuids = _stored_uuids(tables[keeper], keeper)
        for name in (stored_uuids.keys() & tables.keys()) - new_names:
            if stored_uuids[name] != str(tables[name].metadata.table_uuid):
                raise LakeDamaged.replaced(f"{namespace}.{name}")
        uuids |= stored_uuids
    return uuids | _uuids_of(tables)


def store_uuids(
    catalog: "Catalog", namespace: str, tables: Mapping[str, "Table"], uuids: Mapping[str, str]
) -> None:
    """Store the UUIDs of own tables where the loaded ones lack them."""
    from pyiceberg.exceptions import CommitFailedException

    for keeper in KEEPERS:
        if _stored_uuids(tables[keeper], keeper) != uuids:
            # Another process that opens the lake stores the same; after another commit, the next one does.
            current = load_stored(catalog, f"{namespace}.{keeper}")
            with suppress(CommitFailedException), current.transaction() as transaction:
                transaction.set_properties({UUIDS_PROPERTY: json.dumps(dict(uuids), sort_keys=True)})


def _is_of_cycle(snapshot: "Snapshot") -> bool:
    """Return whether a cycle made a snapshot: the first one, for the first branch, has no rows."""
    return snapshot.summary is not None and CYCLE in snapshot.summary.additional_properties


def _uuids_of(tables: Mapping[str, "Table"]) -> dict[str, str]:
    # Damaged check results are dropped and created again.
    return {name: str(table.metadata.table_uuid) for name, table in tables.items() if name != CHECK_RESULTS}


def _stored_uuids(table: "Table", name: str) -> dict[str, str]:
    text = table.properties.get(UUIDS_PROPERTY, "{}")
    return read_stored(partial(parse_stored, shape=dict[str, str]), text, name, UUIDS_PROPERTY)
