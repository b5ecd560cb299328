"""Errors of Datastream's API: their meaning, and what to do about them."""

from typing import Final

from cdc_platform.errors import AccessDenied, SourceError, SourceNotFound
from cdc_platform.sources.datastream.settings.stream_settings import StreamSettings
from cdc_platform.sources.statuses import StatusMeaning, find_meaning

_ACCESS_ADVICE: Final = (
    "Give the account of this process roles/datastream.viewer (datastream.streams.get and "
    "datastream.objects.list) in the stream's project"
)
_UNREACHABLE_ADVICE: Final = (
    "Its state is not known, and its files are read all the same. Check the network, and `datastream_host` "
    "if one is set; the next run asks again"
)
_REFUSED_ADVICE: Final = (
    "Datastream refused the question; check `stream`, and `datastream_host` if one is set"
)

MEANINGS: Final = (
    StatusMeaning(
        "PERMISSION_DENIED",
        "has not been used in project",
        AccessDenied,
        "Enable the API datastream.googleapis.com in the stream's project",
    ),
    StatusMeaning("PERMISSION_DENIED", "", AccessDenied, _ACCESS_ADVICE),
    StatusMeaning("UNAUTHENTICATED", "", AccessDenied, _ACCESS_ADVICE),
    StatusMeaning(
        "NOT_FOUND",
        "",
        SourceNotFound,
        "Check `stream`; `gcloud datastream streams list --location=LOCATION` lists them. If it was deleted, "
        "nothing new comes until another one writes to the same place",
    ),
)
"""The first row that fits counts."""


def to_stream_error(settings: StreamSettings, code: str, text: str) -> SourceError:
    """Return the platform's error for a gRPC status; its message names the stream and what to do."""
    meaning = find_meaning(MEANINGS, code, text, passing=_UNREACHABLE_ADVICE, refused=_REFUSED_ADVICE)
    return meaning.error(
        f"Cannot read the state of {settings.title}. {meaning.advice}. Datastream said {code}: {text}"
    )
