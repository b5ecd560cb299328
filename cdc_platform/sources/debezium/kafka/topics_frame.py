"""Messages of topics as a data frame, by Spark's own source of Kafka, dealt out to splits."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses
from pyspark.sql.pandas.types import from_arrow_schema

from cdc_platform.sources.debezium.kafka.topic_ranges import TopicRange
from cdc_platform.sources.debezium.kafka.topics_reader import MESSAGES
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.splits.outcome import SPLIT
from cdc_platform.sources.workers import prepare_worker

_ARRIVED: Final = "arrived"
_ROUTE: Final = "route"
_ROUTED: Final = pa.schema([*MESSAGES, (_ARRIVED, pa.int64()), (_ROUTE, pa.string())])
_TRANSACTION: Final = r'"(?:__(?:source_)?)?txId":(?P<change>[0-9]+)|"id":"(?P<boundary>[0-9]+):[0-9]+"'
_SNAPSHOT_ROW: Final = r'"snapshot":"(?:true|first|last|first_in_data_collection|last_in_data_collection)"'
_TOGETHER: Final = 5_000
"""Offsets of a partition whose snapshot rows go to one split."""


@dataclass(frozen=True)
class MessageRouter:
    """Takes batches of a partition's messages in their order, and says which must be in one split.

    The messages of a transaction belong together, as far as their texts show; a split that turns out to have
    a part of one is decoded again with the others.

    Args:
        splits: how many splits there are at most.
        spreads_snapshots: whether the rows of a snapshot need not be in one split.
    """

    splits: int = 1
    spreads_snapshots: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the messages with their routes, and with the newest moment at which any was sent so far."""
        prepare_worker()
        newest: dict[tuple[str, int], int] = {}
        for batch in batches:
            if batch.num_rows:
                place = (batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
                arrived = pc.cumulative_max(batch.column("micros"), start=newest.get(place))
                newest[place] = arrived[-1].as_py()
                columns = [*batch.columns, arrived, self._routes(batch)]
                yield pa.RecordBatch.from_arrays(columns, schema=_ROUTED)

    def _routes(self, batch: pa.RecordBatch) -> pa.Array:
        values = pc.cast(batch.column("value"), pa.large_binary())
        found = pc.extract_regex(values, _TRANSACTION)
        change, boundary = (pc.struct_field(found, name) for name in ("change", "boundary"))
        is_change = pc.fill_null(pc.not_equal(change, b""), False)
        routes = pc.cast(pc.fill_null(pc.if_else(is_change, change, boundary), b""), pa.string())
        if not self.spreads_snapshots:
            return routes
        is_row = pc.fill_null(pc.match_substring_regex(values, _SNAPSHOT_ROW), False)
        numbers = pc.cast(pc.divide(batch.column("offset"), _TOGETHER), pa.string())
        partitions = pc.cast(batch.column("partition"), pa.string())
        of_rows = pc.binary_join_element_wise(batch.column("topic"), partitions, numbers, "/")
        return pc.if_else(is_row, of_rows, routes)


def read_messages(
    spark: SparkSession,
    settings: KafkaInput,
    ranges: Sequence[TopicRange],
    router: MessageRouter = MessageRouter(),
) -> DataFrame:
    """Return the messages of partitions, a split in each task, in about the order in which they were sent.

    Those of a partition keep their order, whatever their senders' clocks said.

    Args:
        spark: session that reads.
        settings: of the topics.
        ranges: the partitions, at least one.
        router: says which messages must be in one split.

    Returns:
        `MESSAGES`, and the number of each one's split.
    """
    source = spark.read.format("kafka").options(**settings.spark_options())
    for name, offsets in _places(ranges).items():
        source = source.option(name, json.dumps(offsets))
    # A task of Spark's source has one partition of a topic.
    messages = source.load().withColumn("micros", F.unix_micros("timestamp")).select(*MESSAGES.names)
    routed = messages.mapInArrow(router, from_arrow_schema(_ROUTED))
    dealt = routed.repartition(router.splits, _ROUTE).sortWithinPartitions(
        _ARRIVED, "topic", "partition", "offset"
    )
    return dealt.select(*MESSAGES.names, F.spark_partition_id().cast("long").alias(SPLIT))


def _places(ranges: Sequence[TopicRange]) -> dict[str, dict[str, object]]:
    """Return the options of Spark's source that say what is read."""
    places: dict[str, dict[str, object]] = {"assign": {}, "startingOffsets": {}, "endingOffsets": {}}
    for topic in sorted({topic_range.topic for topic_range in ranges}):
        own = [topic_range for topic_range in ranges if topic_range.topic == topic]
        places["assign"][topic] = [topic_range.partition for topic_range in own]
        places["startingOffsets"][topic] = {
            str(topic_range.partition): topic_range.start for topic_range in own
        }
        places["endingOffsets"][topic] = {
            str(topic_range.partition): topic_range.end_exclusive for topic_range in own
        }
    return places
