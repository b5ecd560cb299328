"""Asset of the Datastream stream itself: its observations show the state that Datastream reports.

Nothing here touches the lake, so an observation waits for no other run, and a failed one stops no run.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import dagster as dg
from dagster_shared.utils.warnings import BetaWarning

from cdc_platform.errors import SourceError
from cdc_platform.metadata import Metadata, describe_facts, link_status_page, rows_table
from cdc_platform.model.base.cached_values import cached_value
from cdc_platform.model.base.names import PLATFORM_GROUP
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.sources.datastream.settings.stream_settings import StreamSettings
from cdc_platform.sources.datastream.stream.stream_reader import read_stream
from cdc_platform.sources.datastream.stream.stream_state import (
    StreamError,
    StreamObject,
    StreamState,
    StreamStatus,
)

STREAM_ASSET: Final = "stream"
SHOWN_OBJECTS: Final = 200
"""Maximum number of objects that an observation shows; objects with errors come first."""
SHOWN_ERRORS: Final = 50


@dataclass(frozen=True)
class StreamAsset:
    """Names of a pipeline's stream in Dagster, and the settings that identify the stream."""

    pipeline: str
    settings: StreamSettings
    owners: tuple[str, ...] = ()

    @property
    def key(self) -> dg.AssetKey:
        """Key of the stream."""
        return dg.AssetKey([f"{self.pipeline}__cdc", STREAM_ASSET])

    @property
    def resource_key(self) -> str:
        """Resource key of the stream's state, for the asset and its check."""
        return f"{self.pipeline}__stream"


class StreamReading:
    """State of a stream as Datastream reports it; one request per run serves the asset and its check."""

    def __init__(self, settings: StreamSettings) -> None:
        self._settings = settings

    @cached_value
    def outcome(self) -> StreamStatus | SourceError:
        """The stream's status, or the error of the read; raises if a library is missing."""
        try:
            return read_stream(self._settings)
        except SourceError as error:
            return error


def stream_resource(stream: StreamAsset) -> dg.ResourceDefinition:
    """Return the resource that asks Datastream for the stream's status."""

    def make(_context: dg.InitResourceContext) -> StreamReading:
        return StreamReading(stream.settings)

    return dg.ResourceDefinition(
        make, description=f"State of the {stream.settings.title} from Datastream, read once per run."
    )


def build_stream(stream: StreamAsset) -> dg.AssetsDefinition:
    """Return the asset that stands for the stream; it is observed, never materialised."""
    with warnings.catch_warnings():
        # Dagster warns that observed assets with owners and kinds are beta.
        warnings.simplefilter("ignore", BetaWarning)
        return _build_observed(stream)


def _build_observed(stream: StreamAsset) -> dg.AssetsDefinition:
    def stream_state(context: dg.AssetExecutionContext) -> dg.ObserveResult:
        outcome = find_reading(context, stream).outcome
        if isinstance(outcome, SourceError):
            context.log.warning(str(outcome))
        return dg.ObserveResult(stream.key, metadata=describe_stream(outcome))

    # Dagster gives this decorator no types.
    observed: Callable[[Callable[..., Any]], dg.AssetsDefinition] = dg.multi_observable_source_asset(
        name=f"{stream.pipeline}__stream_state",
        specs=[_spec(stream)],
        required_resource_keys={stream.resource_key},
    )
    return observed(stream_state)


def _spec(stream: StreamAsset) -> dg.AssetSpec:
    return dg.AssetSpec(
        stream.key,
        group_name=f"{stream.pipeline}/{PLATFORM_GROUP}",
        kinds={"datastream"},
        owners=list(stream.owners),
        metadata={"stream": stream.settings.stream, **link_status_page(stream.pipeline)},
        description="The Datastream stream that writes the events of this pipeline.\n\n"
        "Its observations show its state, its errors and its objects: a paused or failed stream writes no "
        "events, just like a stream whose source has no changes.",
    )


def find_reading(
    context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext, stream: StreamAsset
) -> StreamReading:
    """Return the stream's state that Datastream reported in this run."""
    reading = getattr(context.resources, stream.resource_key)
    if not isinstance(reading, StreamReading):
        message = f"Resource {stream.resource_key} is not a reading of a stream, but {type(reading).__name__}"
        raise TypeError(message)
    return reading


def describe_stream(outcome: StreamStatus | SourceError) -> Metadata:
    """Describe a stream's state, with advice, errors and objects, under the labels of its check."""
    if isinstance(outcome, SourceError):
        problem = f"{type(outcome).__name__}: {outcome}"
        return describe_facts({"state": StreamState.UNKNOWN.value, "advice": problem})
    backfills = Counter(stream_object.backfill for stream_object in outcome.objects)
    errors = list(_error_records(outcome))
    return describe_facts(
        {
            "state": outcome.state.value,
            "advice": outcome.advice,
            "display_name": outcome.display_name,
            "stream_errors": len(outcome.errors),
            "objects": len(outcome.objects),
            "objects_in_trouble": len(outcome.troubled_objects),
            **{f"backfills_{state.value}": count for state, count in sorted(backfills.items())},
            **({"errors": dg.MetadataValue.table(errors[:SHOWN_ERRORS])} if errors else {}),
            **({"object_table": _object_table(outcome.objects)} if outcome.objects else {}),
        }
    )


def _error_records(status: StreamStatus) -> Iterator[dg.TableRecord]:
    for error in status.errors:
        yield _error_record("the stream", error)
    for stream_object in status.objects:
        for error in stream_object.errors:
            yield _error_record(stream_object.name, error)


def _error_record(where: str, error: StreamError) -> dg.TableRecord:
    return dg.TableRecord(
        {
            "where": where,
            "reason": error.reason,
            "message": error.message,
            "at": to_rfc3339(error.at_micros) if error.at_micros is not None else "",
            "error_uuid": error.uuid,
            "details": ", ".join(f"{name}={value}" for name, value in error.details),
        }
    )


def _object_table(objects: tuple[StreamObject, ...]) -> dg.TableMetadataValue:
    in_trouble_first = sorted(
        objects, key=lambda stream_object: (not stream_object.is_troubled, stream_object.name)
    )
    return rows_table(
        {
            "object": stream_object.name,
            "backfill": stream_object.backfill.value,
            "errors": "; ".join(error.text for error in stream_object.errors),
        }
        for stream_object in in_trouble_first[:SHOWN_OBJECTS]
    )
