"""The source for each kind of settings."""

from functools import singledispatch

from cdc_platform.pipeline.opened.source import Source, SourceSettings
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.source import DatastreamSource
from cdc_platform.sources.debezium.files.source import DebeziumSource
from cdc_platform.sources.debezium.kafka.topics_source import TopicsSource
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.spanner.source import SpannerSource
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings


@singledispatch
def open_source(settings: SourceSettings) -> Source:
    """Return the source of these settings; it connects at first use."""
    raise TypeError(f"no source belongs to {type(settings).__name__}")


@open_source.register
def _(settings: SpannerSettings) -> Source:
    return SpannerSource(settings)


@open_source.register
def _(settings: DatastreamSettings) -> Source:
    return DatastreamSource(settings)


@open_source.register
def _(settings: DebeziumSettings) -> Source:
    chosen_input = settings.input
    return (
        TopicsSource(settings, chosen_input)
        if isinstance(chosen_input, KafkaInput)
        else DebeziumSource(settings)
    )
