"""Settings of the Datastream stream whose state is read, and of its requests."""

import re
from dataclasses import dataclass
from typing import Final

from cdc_platform.errors import SettingError
from cdc_platform.model.base.declared_settings import check_host, check_range

_STREAM_NAME: Final = re.compile(
    r"projects/(?P<project>[^/\s]+)/locations/(?P<location>[^/\s]+)/streams/(?P<stream>[^/\s]+)"
)


@dataclass(frozen=True)
class StreamSettings:
    """Location of a stream, and the time limit of requests about it.

    ``stream`` is its full name, as in the `stream_name` of events. ``datastream_host`` is the address of an
    emulator, used without credentials and encryption; None means Google's. ``deadline_s`` limits a whole read
    with all its pages and retries, ``call_deadline_s`` one attempt at one call.
    """

    stream: str
    datastream_host: str | None = None
    deadline_s: float = 20.0
    call_deadline_s: float = 5.0
    max_attempts: int = 3
    backoff_initial_s: float = 0.2
    backoff_max_s: float = 2.0

    def __post_init__(self) -> None:
        if _STREAM_NAME.fullmatch(self.stream) is None:
            example = "projects/PROJECT/locations/LOCATION/streams/STREAM"
            raise SettingError("stream", f"must look like {example}, but is: {self.stream!r}")
        check_host("datastream_host", self.datastream_host, "localhost:9020")
        check_range(self, ("deadline_s", "call_deadline_s", "max_attempts"), above=0)

    @property
    def title(self) -> str:
        """Name of the stream in messages."""
        return f"stream `{self.stream}`"
