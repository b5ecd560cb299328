"""The YAML of a pipeline that reads the files of a Datastream stream."""

import dagster as dg

from cdc_platform.assets.stream_state import StreamAsset, build_stream, stream_resource
from cdc_platform.assets.upstream import NO_UPSTREAM, Upstream, file_kind
from cdc_platform.checks.stream_state import build_stream_check
from cdc_platform.components.pipeline import PipelineComponent
from cdc_platform.components.scaffolding import PipelineScaffolder
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.settings.stream_settings import StreamSettings
from cdc_platform.sources.datastream.stream.stream_reader import require_library


@dg.scaffold_with(PipelineScaffolder)
class DatastreamPipeline(PipelineComponent):
    """The files of a Datastream stream as tables of a lake."""

    source_class = DatastreamSettings

    def upstream(self, settings: PipelineSettings) -> Upstream:
        """Return the stream itself, where the settings name it."""
        source = settings.source
        if not isinstance(source, DatastreamSettings):
            return NO_UPSTREAM
        kinds = frozenset({file_kind(source.path)})
        if source.stream is None:
            return Upstream(kinds=kinds)
        require_library()
        # Commands that read settings alone must not load Spark.
        from cdc_platform.assets.check_results import last_results
        from cdc_platform.lake.state.last_results import save_results
        from cdc_platform.pipeline.opened.pipeline import open_lake

        def store(evaluations: list[dg.AssetCheckEvaluation]) -> None:
            save_results(open_lake(settings), last_results(evaluations))

        stream_settings = StreamSettings(source.stream, source.datastream_host)
        stream = StreamAsset(self.name, stream_settings, self.runs.owners)
        return Upstream(
            (build_stream(stream),),
            (build_stream_check(stream, store),),
            {stream.resource_key: stream_resource(stream)},
            kinds,
        )
