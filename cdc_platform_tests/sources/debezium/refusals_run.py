"""Asks an engine for what it must refuse: orders on the standard input, a line each, all in one Java."""

import json
import os
import sys

from cdc_platform.errors import CdcError
from cdc_platform.sources.debezium.engine.batches import Run
from cdc_platform.sources.debezium.engine.engine import Order, capture


def refusal_of(order: Order) -> tuple[str, str]:
    """Return the error's name and text."""
    try:
        capture(order, Run())
    except CdcError as error:
        return type(error).__name__, str(error)
    return "", ""


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(refusal_of(Order.from_json(line))) + "\n")
    sys.stdout.flush()
    os._exit(0)
