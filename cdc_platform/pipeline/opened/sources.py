"""The source for each kind of settings."""

from cdc_platform.model.stream.source_capabilities import SourceSettings
from cdc_platform.pipeline.opened.source import Source
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.source import DatastreamSource
from cdc_platform.sources.debezium.files.source import DebeziumSource
from cdc_platform.sources.debezium.kafka.topics_source import TopicsSource
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.spanner.source import SpannerSource
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings


def open_source(settings: SourceSettings) -> Source:
    """Return the source of these settings; it connects at first use."""
    match settings:
        case SpannerSettings():
            return SpannerSource(settings)
        case DatastreamSettings():
            return DatastreamSource(settings)
        case DebeziumSettings(input=KafkaInput() as topics):
            return TopicsSource(settings, topics)
        case DebeziumSettings():
            return DebeziumSource(settings)
    raise TypeError(f"no source belongs to {type(settings).__name__}")
