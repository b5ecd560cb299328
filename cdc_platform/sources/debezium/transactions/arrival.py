"""A message that has arrived, as the collector of transactions takes it."""

import msgspec

from cdc_platform.sources.debezium.rows.decoder import Decoded


class Arrival(msgspec.Struct, frozen=True):
    """Content of one message, and its place: which file or partition, and how far in it.

    ``micros`` is when it was sent, where messages of several partitions come in one stream.
    """

    event: Decoded
    origin: str
    position: int
    micros: int = 0
