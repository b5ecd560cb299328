"""Tables whose rows the spool lacks, and the snapshot that reads them while the engine follows changes.

The connector captures the changes of a table that was created, or chosen, since the last start. It does not
read the rows that the table has already; a blocking snapshot of such tables alone does.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Final

from cdc_platform.errors import CaptureStopped, SpoolUnusable
from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.base.stored_texts import parse_stored
from cdc_platform.private_files import write_whole
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform.sources.debezium.engine.spool_files import reported_as_unusable
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput, Snapshot

LOGGER: Final = logging.getLogger(__name__)
_READ_LATER: Final = (Snapshot.INITIAL, Snapshot.WHEN_NEEDED)
_BLOCKING: Final = "Initial Snapshot"
"""Type of the notifications of a blocking snapshot, too; those of incremental ones have another."""


class NewTables:
    """Tables whose rows are to be read.

    Args:
        spool: its writer has been opened.
        settings: of the engine.
        present: identifiers of the database's tables by SCHEMA.TABLE. A recreated table has another one.
        selects: queries that read tables differently from others, by quoted name.
    """

    def __init__(
        self, spool: Spool, settings: EngineInput, present: Mapping[str, str], selects: Mapping[str, str]
    ) -> None:
        self._spool, self._selects = spool, selects
        self._present = {name: oid for name, oid in present.items() if settings.selects(name)}
        self._is_signalled = self._has_rows = self._is_aborted = False
        self._failed_scans: dict[str, str] = {}
        # The end of a snapshot of an earlier signal would count as that of these tables.
        spool.signals.unlink(missing_ok=True)
        self.names = _new_names(spool, self._present) if settings.snapshot in _READ_LATER else []
        if not self.names:
            self.take()

    @property
    def properties(self) -> dict[str, str]:
        """Properties of the connector, whose snapshot would otherwise read each partition as a table, too."""
        return {"snapshot.include.collection.list": expressions_of(sorted(self._present))}

    @property
    def are_read(self) -> bool:
        """Whether the connector reads the rows; all rows of a snapshot that come now are theirs."""
        return self._is_signalled and not self._has_rows

    def signal(self) -> None:
        """Ask the connector, once, to read the rows."""
        if self.names and not self._is_signalled:
            data = {
                "type": "BLOCKING",
                "data-collections": list(map(expression_of, self.names)),
                "additional-conditions": [
                    {"data-collection": name, "filter": select} for name, select in self._selects.items()
                ],
            }
            signal = {"id": "new_tables", "type": "execute-snapshot", "data": data}
            write_whole(self._spool.signals, json.dumps(signal))
            self._is_signalled = True

    def follow(self, notification: str) -> None:
        """Track the snapshot by a notification of the connector, as JSON."""
        fields = json.loads(notification)
        if not self._is_signalled or fields["aggregate_type"] != _BLOCKING:
            return
        kind, more = fields["type"], fields.get("additional_data") or {}
        if kind == "TABLE_SCAN_COMPLETED" and more.get("status") != "SUCCEEDED":
            self._failed_scans[str(more.get("scanned_collection"))] = str(more.get("status"))
        self._has_rows |= kind == "COMPLETED"
        self._is_aborted |= kind == "ABORTED"

    def finish(self) -> None:
        """Store that the spool has the rows, once the events before the snapshot's end have been written.

        Raises:
            CaptureStopped: the connector has given the snapshot up; it does not try again.
        """
        if not self.names:
            return
        if self._has_rows:
            self.take()
        elif self._is_aborted:
            failures = ", ".join(f"`{table}` ({status})" for table, status in self._failed_scans.items())
            raise CaptureStopped(
                f"The rows of new tables cannot be read: {failures or ', '.join(self.names)}. Grant the role "
                "USAGE on their schemas and SELECT on the tables, or leave them out with `tables`; the next "
                f"start reads {', '.join(self.names)}. Reason: {self._spool.log}"
            )

    def take(self) -> None:
        """Store that the spool has the rows of all tables."""
        write_whole(self._spool.tables, json.dumps(self._present))
        self.names = []


def expression_of(name: str) -> str:
    """Return the regular expression of a name in the connector's lists, which have commas and ignore case."""
    expression = re.escape(name).replace(",", r"\x2C")
    return f"(?-i:{expression})"


def expressions_of(names: Iterable[str]) -> str:
    """Return the names as a list of regular expressions for a property of the connector."""
    return ",".join(map(expression_of, names))


def _new_names(spool: Spool, present: Mapping[str, str]) -> list[str]:
    """Return the tables without rows in the spool; none at the first start, whose snapshot reads all."""
    with reported_as_unusable(spool.folder):
        if not spool.tables.exists():
            if spool.files():
                LOGGER.warning(
                    "The spool has no list of the tables whose rows were read: an older version has made it. "
                    "If a table was added since its first start, take a snapshot of it."
                )
            return []
        text = spool.tables.read_text(encoding="utf-8")
    try:
        stored_ids = parse_stored(text, dict[str, str])
    except MALFORMED as error:
        raise SpoolUnusable(
            f"The list of tables whose rows were read is damaged ({error}). Delete it, and take a snapshot "
            f"of each table that was added since the newest start of the engine: {spool.tables}"
        ) from error
    return sorted(name for name, oid in present.items() if stored_ids.get(name) != oid)
