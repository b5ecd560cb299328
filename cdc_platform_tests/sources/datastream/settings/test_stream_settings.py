"""Settings of a stream's own state."""

from typing import Any

import pytest

from cdc_platform.errors import SettingError
from cdc_platform.sources.datastream.settings.stream_settings import StreamSettings
from cdc_platform_tests.sources.datastream.datastream_server import STREAM


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("stream", "accounts"),
        ("stream", "projects/p/locations/l/streams/"),
        ("stream", f"{STREAM}/objects/1"),
        ("datastream_host", "http://localhost:9020"),
        ("datastream_host", "localhost"),
        ("deadline_s", 0.0),
        ("call_deadline_s", -1.0),
        ("deadline_s", float("nan")),
        ("call_deadline_s", float("inf")),
        ("max_attempts", 0),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_its_name(setting: str, value: object) -> None:
    """The error names the setting and shows what it holds."""
    fields: dict[str, Any] = {"stream": STREAM, setting: value}
    with pytest.raises(SettingError, match=f"`{setting}` must .*{value}") as caught:
        StreamSettings(**fields)
    assert setting == caught.value.setting


def test_names_as_events_have_them_are_taken() -> None:
    """Events name their stream with the number of its project."""
    name = "projects/1054319872/locations/us-central1/streams/ea-main"
    assert f"stream `{name}`" == StreamSettings(name).title
