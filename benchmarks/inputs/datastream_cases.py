"""Forms of Datastream's events that are not the plain one; none should cost more than its bytes do."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

Event = dict[str, Any]
EVENTS_A_FILE: Final = 500
PLAIN: Final = "plain"
_TABLES: Final = 50
_COLUMNS: Final = 200
_ITEMS: Final = 20
_SOUND_EVENTS: Final = 1_000
"""Events of which one is faulty."""


def _plain(_event: Event, _number: int) -> None:
    """Events are unchanged."""


def _key_deletes(event: Event, number: int) -> None:
    """A quarter of the events are deletes, whose metadata alone has the key."""
    if number % 4 == 3:
        key = {"id": event["payload"]["id"]}
        event["source_metadata"] |= {"change_type": "DELETE", "is_deleted": True, "primary_keys": key}
        event["payload"] = None


def _documents(event: Event, number: int) -> None:
    """Rows are nested documents of MongoDB, with a space after each comma and colon."""
    metadata, row = event["source_metadata"], event["payload"]
    change = {"INSERT": "CREATE", "UPDATE-INSERT": "UPDATE"}.get(metadata["change_type"], "DELETE")
    event["source_metadata"] = {"database": "bank", "collection": "accounts", "primary_keys": ["_id"]}
    event["source_metadata"] |= {"change_type": change, "is_deleted": change == "DELETE"}
    event["read_method"], event["sort_keys"] = "cdc", [event["sort_keys"][0] // 1000, number]
    row["items"] = [{"n": place, "tags": ["a", "b"], "price": "1.50"} for place in range(_ITEMS)]
    key = json.dumps({"$oid": f"{row['id']:024x}"})
    event["payload"] = {"_id": key, "data": None if change == "DELETE" else row}


def _tables(event: Event, _number: int) -> None:
    """Each file has the events of one of many tables."""
    table = f"accounts_{event['payload']['id'] // EVENTS_A_FILE % _TABLES}"
    event["object"], event["source_metadata"]["table"] = f"bank_{table}", table


def _wide(event: Event, number: int) -> None:
    """Rows have many columns."""
    event["payload"] |= {f"c{place}": number * place for place in range(_COLUMNS)}


def _faulty(event: Event, number: int) -> None:
    """Few events lack their key."""
    if number % _SOUND_EVENTS == 0:
        event["payload"]["id"] = None


CASES: Final[Mapping[str, Callable[[Event, int], None]]] = {
    PLAIN: _plain,
    "key-deletes": _key_deletes,
    "documents": _documents,
    "tables": _tables,
    "wide": _wide,
    "faulty": _faulty,
}
BALANCES: Final[Mapping[str, str]] = {"documents": "get_json_object(data, '$.balance')"}
"""SQL of the balance of a row, for cases in which it is no column."""
