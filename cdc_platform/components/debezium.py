"""The YAML of a pipeline that reads Debezium's events of PostgreSQL."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from cdc_platform.assets.upstream import Upstream, file_kind
from cdc_platform.components.pipeline import PipelineComponent
from cdc_platform.components.scaffolding import PipelineScaffolder
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput


@dg.scaffold_with(PipelineScaffolder)
class DebeziumPipeline(PipelineComponent):
    """Debezium's events of a PostgreSQL database as tables of a lake."""

    source_class = DebeziumSettings

    def source_settings(self, entries: Mapping[str, Any], folder: Path) -> DebeziumSettings:
        """Return the settings of the events."""
        settings = DebeziumSettings.from_fields(entries, folder)
        if settings.column_placeholders:
            from cdc_platform.sources.debezium.rows.plans import check_masks

            check_masks(settings)
        return settings

    def upstream(self, settings: PipelineSettings) -> Upstream:
        """Return the kinds of the source: Debezium, and where its events come from."""
        event_input = getattr(settings.source, "input", None)
        by_input = {KafkaInput: "kafka", EngineInput: "postgresql"}
        kind = by_input.get(type(event_input)) or file_kind(getattr(event_input, "path", ""))
        return Upstream(kinds=frozenset({"debezium", kind}))
