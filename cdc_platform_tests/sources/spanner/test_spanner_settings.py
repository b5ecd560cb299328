import os
from dataclasses import replace

import pytest

from cdc_platform.errors import SettingError
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform.sources.workers import keep_out_of_forks

SETTINGS = SpannerSettings("p", "i", "d", "s")


def test_options_round_trip() -> None:
    """Settings survive their way to a worker of Spark."""
    settings = SpannerSettings("p", "i", "d", 's"/', nanosecond_columns=("t.at",))

    assert settings == SpannerSettings.from_options(settings.to_options())


def test_environment_names_an_emulator() -> None:
    """The environment's emulator is used where the settings name none."""
    environment = {"SPANNER_EMULATOR_HOST": "localhost:9010"}
    own = SpannerSettings("p", "i", "d", "s", emulator_host="other:1")

    assert SETTINGS.with_environment(environment).emulator_host == "localhost:9010"
    assert own.with_environment(environment).emulator_host == "other:1"
    assert SETTINGS.with_environment({}).emulator_host is None


def test_an_unusable_emulator_of_the_environment_is_named_by_its_variable() -> None:
    """Google's own clients only warn of an address with a scheme, so users may have one."""
    with pytest.raises(SettingError, match="variable SPANNER_EMULATOR_HOST counts, which must look like"):
        SETTINGS.with_environment({"SPANNER_EMULATOR_HOST": "http://localhost:9010"})


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("change_stream", " "),
        ("dialect", "mysql"),
        ("priority", "high"),
        ("heartbeat_ms", 99),
        ("stuck_after_s", 2.0),  # no longer than the pause between two heartbeats
        ("stuck_after_s", float("nan")),  # no comparison with it is ever true
        ("stuck_after_s", float("inf")),
        ("deadline_s", 0.0),
        ("deadline_s", float("nan")),
        ("connect_deadline_s", float("inf")),
        ("start_timestamp", "yesterday"),
        ("start_timestamp", "2026-01-31T08:00:00"),  # no offset
        ("emulator_host", "http://localhost:9010"),
        ("nanosecond_columns", ("at",)),  # of which table?
    ],
)
def test_unusable_setting_is_named(setting: str, value: object) -> None:
    """A setting that cannot be used is refused at once, by its name."""
    fields = {"project": "p", "instance": "i", "database": "d", "change_stream": "s", setting: value}

    with pytest.raises(SettingError, match=f"`{setting}`"):
        SpannerSettings(**fields)  # type: ignore[arg-type] # the point of the test


def test_a_deadline_also_ends_the_start_of_a_session() -> None:
    """A code location waits for each silent source in turn, and the start of a session is a request, too."""
    short, long = SETTINGS.with_deadline(2.0), SETTINGS.with_deadline(600.0)
    assert (short.deadline_s, short.connect_deadline_s, short.max_attempts) == (2.0, 2.0, 1)
    assert (long.deadline_s, long.connect_deadline_s) == (60.0, 8.0)


@pytest.mark.parametrize(
    ("heartbeat_ms", "stuck_after_s", "silence_s"),
    [
        (2_000, None, 20.0),
        (100, None, 20.0),  # a first answer may take longer than ten short heartbeats
        (60_000, None, 600.0),
        (2_000, 5.0, 5.0),
    ],
)
def test_a_partition_may_be_silent_for_ten_heartbeats(
    heartbeat_ms: int, stuck_after_s: float | None, silence_s: float
) -> None:
    """The setting decides, else the interval of heartbeats."""
    settings = replace(SETTINGS, heartbeat_ms=heartbeat_ms, stuck_after_s=stuck_after_s)
    assert silence_s == settings.longest_silence_s


def test_grpc_keeps_out_of_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forked children are left alone by gRPC, unless the environment says otherwise."""
    variable = "GRPC_ENABLE_FORK_SUPPORT"
    monkeypatch.setenv(variable, "1")
    keep_out_of_forks()
    assert os.environ[variable] == "1"

    monkeypatch.delenv(variable)
    keep_out_of_forks()
    assert os.environ[variable] == "0"
