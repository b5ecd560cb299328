"""The YAML of a pipeline that reads a Spanner change stream."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import dagster as dg

from cdc_platform.assets.upstream import Upstream
from cdc_platform.components.pipeline import PipelineComponent
from cdc_platform.components.scaffolding import PipelineScaffolder
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings


@dg.scaffold_with(PipelineScaffolder)
class SpannerPipeline(PipelineComponent):
    """A Spanner change stream as lakehouse tables, transactionally consistent at every published cut."""

    source_class = SpannerSettings
    left_out: ClassVar[frozenset[str]] = frozenset()

    def source_settings(self, entries: Mapping[str, Any], folder: Path) -> SpannerSettings:
        """Return the settings of the change stream; its requests are tagged with the pipeline's name."""
        settings = SpannerSettings.from_fields(entries, folder)
        return replace(settings, request_tag=f"cdc_platform/{self.name}").with_environment()

    def upstream(self, settings: PipelineSettings) -> Upstream:  # noqa: ARG002  all are of one kind
        """Return the kind of the source."""
        return Upstream(kinds=frozenset({"spanner"}))
