"""Frames that are computed once for several queries."""

from contextlib import ExitStack

from pyspark.sql import DataFrame


def hold(held: ExitStack, frame: DataFrame) -> DataFrame:
    """Return a frame that is computed once, and forgotten at the end of the stack."""
    persisted = frame.persist()
    held.callback(persisted.unpersist)
    return persisted
