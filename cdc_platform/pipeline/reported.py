"""What ticks have read by their own reports: of which files and topics events were asked for again."""

from cdc_platform.lake.lake import RAW
from cdc_platform.lake.ledger import REPLAY
from cdc_platform.lake.quarantine import load_replays
from cdc_platform.pipeline.pipeline import Pipeline


def has_texts(pipeline: Pipeline, reports: str) -> bool:
    """Whether some tick has taken a replay of texts; its reports are those that the filter tells."""
    if not load_replays(pipeline.lake).texts:
        return False
    return any(origin.startswith(REPLAY) for origin in _origins(pipeline, reports))


def replayed_origins(pipeline: Pipeline, reports: str) -> frozenset[str]:
    """Return the files and topics that ticks have read, and of which somebody has had events read again."""
    asked = load_replays(pipeline.lake).origins
    if not asked:
        return frozenset()
    reported = _origins(pipeline, reports)
    return asked if any(origin.startswith(REPLAY) for origin in reported) else asked & reported


def _origins(pipeline: Pipeline, reports: str) -> frozenset[str]:
    scan = pipeline.lake.system_table(RAW).scan(
        reports, selected_fields=("kind", "record_timestamp", "event")
    )
    return frozenset(event["origin"] for event in scan.to_arrow()["event"].to_pylist())
