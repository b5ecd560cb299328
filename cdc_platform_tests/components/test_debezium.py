"""The YAML of a Debezium pipeline that reads topics."""

from pathlib import Path
from typing import Any

import pytest

from cdc_platform.components.debezium import DebeziumPipeline
from cdc_platform.components.loading import load_settings
from cdc_platform.errors import SettingError
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform_tests.yaml_files import write_defs


def load(folder: Path, place: dict[str, Any], **source: Any) -> PipelineSettings:
    """Return the settings of a pipeline whose events are at a place."""
    attributes = {
        "name": "shop",
        "source": {"input": place, **source},
        "lake": {"path": "lake"},
        "tables": ["public.a"],
    }
    type_name = f"{DebeziumPipeline.__module__}.{DebeziumPipeline.__name__}"
    return load_settings(write_defs(folder, attributes, type_name))


def test_topics_are_read_with_a_source_for_them(tmp_path: Path) -> None:
    """Settings of topics arrive unchanged; Spark gets the Kafka package only if topics are read."""
    kafka = {
        "bootstrap_servers": "localhost:9092",
        "topics_pattern": "shop[.].*",
        "client": {"security.protocol": "SSL", "ssl.ca.location": "ca.pem"},
        "max_messages": 5,
        "transaction_patience_s": 60.0,
        "start_offsets": {"shop.public.a/0": 7},
    }
    settings = load(tmp_path, {"kafka": kafka})
    assert isinstance(settings.source, DebeziumSettings)
    assert KafkaInput(**kafka) == settings.source.input  # type: ignore[arg-type]  # a test's mapping
    assert DebeziumSettings.from_options(settings.source.to_options()) == settings.source


def test_mistakes_are_named_as_in_the_file(tmp_path: Path) -> None:
    """A setting that cannot be used is found by its place in the file."""
    kafka = {"bootstrap_servers": "localhost:9092", "topics_pattern": "shop[.].*", "max_messages": 0}
    with pytest.raises(SettingError) as raised:
        load(tmp_path, {"kafka": kafka})
    assert raised.value.setting.endswith("source.input.kafka.max_messages")


@pytest.mark.parametrize(
    ("connector", "setting", "problem"),
    [
        ("hex", "connector", "must be a group of settings"),
        ({"bnary": "hex"}, "connector.bnary", "Did you mean `source.connector.binary`"),
        ({"binary": "hax"}, "connector.binary", "must be one of bytes, base64, base64-url-safe, hex"),
    ],
)
def test_modes_of_the_connector_are_a_group(
    tmp_path: Path, connector: Any, setting: str, problem: str
) -> None:
    """A text in place of the group, a misspelled mode and an unknown value are named."""
    with pytest.raises(SettingError, match=problem) as raised:
        load(tmp_path, {"files": {"path": "files"}}, connector=connector)
    assert raised.value.setting.endswith(f"source.{setting}")


def test_tasks_that_decode_get_no_login(tmp_path: Path) -> None:
    """They receive what they need to know; only tasks that read topics get the properties of the client."""
    secret = {"sasl.username": "me", "sasl.password": "hush"}
    kafka = {"bootstrap_servers": "localhost:9092", "topics_pattern": ".*", "client": secret}
    source = load(tmp_path, {"kafka": kafka}).source
    assert isinstance(source, DebeziumSettings)
    assert "hush" not in source.without_password().to_options()
    assert "hush" not in repr(source)


def test_an_unset_password_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the key within its groups, and the variable that is not set."""
    monkeypatch.delenv("SHOP_UNSET", raising=False)
    engine = {"host": "h", "database": "d", "user": "u", "spool": "spool", "password": "{{ env.SHOP_UNSET }}"}
    with pytest.raises(SettingError, match="`SHOP_UNSET` is not set") as raised:
        load(tmp_path, {"engine": engine})
    assert raised.value.setting.endswith("defs.yaml: source.input.engine.password")
