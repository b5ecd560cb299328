"""Settings of a Debezium stream are checked when they are made, and survive as JSON."""

from typing import Any

import pytest

from cdc_platform.errors import SettingError
from cdc_platform.sources.debezium.settings.connector import (
    BinaryMode,
    ConnectorModes,
    DecimalMode,
    NullPolicy,
    SnapshotPolicy,
    Strategy,
)
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput, Input
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput

INPUTS: list[Input] = [
    FilesInput("events/*.jsonl"),
    KafkaInput("localhost:9092", r"s\..*", {"security.protocol": "SSL"}),
    EngineInput(
        "localhost",
        "d",
        "reader",
        "spool",
        tables=("public.a",),
        properties={
            "a": "b",
            "binary.handling.mode": "hex",
            "unavailable.value.placeholder": "hex:FF00",
        },
    ),
]


@pytest.mark.parametrize("source", INPUTS)
def test_settings_survive_as_json(source: Input) -> None:
    """Spark's workers get the very settings."""
    settings = DebeziumSettings(
        source,
        connector=ConnectorModes(binary=BinaryMode.HEX, placeholder="hex:FF00"),
        columns={"public.a": {"x": "date as text"}},
        keys={"public.a": ("id",)},
        null_policies={"*": NullPolicy.NULL},
        strategy=Strategy.ENRICH,
        snapshots=SnapshotPolicy.REPLACE,
        partitions={r"public\.a_\d+": "public.a"},
    )
    assert settings == DebeziumSettings.from_options(settings.to_options())


ENGINE = {"host": "h", "database": "d", "user": "u", "spool": "s"}
TOPICS = {"bootstrap_servers": "b:1", "topics_pattern": "t"}
NAN = float("nan")


@pytest.mark.parametrize(
    ("servers", "brokers"),
    [
        ("a:9092,", "a:9092"),
        (",a:9092", "a:9092"),
        ("SSL://a:9092 , ,b:9092", "SSL://a:9092,b:9092"),
    ],
)
def test_brokers_may_be_listed_with_spaces_and_empty_places(servers: str, brokers: str) -> None:
    """Clients of Kafka differ in what they pass over, so both get the list without."""
    settings = DebeziumSettings.from_fields({"input": {"kafka": TOPICS | {"bootstrap_servers": servers}}})
    assert isinstance(settings.input, KafkaInput)
    assert brokers == settings.input.client_properties()["bootstrap.servers"]
    assert brokers == settings.input.client_properties()["bootstrap.servers"]


@pytest.mark.parametrize(
    ("connector", "properties"),
    [
        ({}, {"unavailable.value.placeholder": "NOPE", "decimal.handling.mode": "string"}),
        ({"placeholder": "NOPE", "decimals": "string"}, {}),
        (
            {"placeholder": "NOPE"},
            {"unavailable.value.placeholder": "NOPE", "decimal.handling.mode": "string"},
        ),
    ],
    ids=["by the engine's properties", "as a connector's modes", "by both"],
)
def test_an_engine_and_its_decoder_agree(connector: dict[str, str], properties: dict[str, str]) -> None:
    """In any form of declaration, both the engine and the decoder of its events get its modes."""
    engine = {"engine": ENGINE | {"properties": {"heartbeat.interval.ms": "1"} | properties}}
    settings = DebeziumSettings.from_fields({"input": engine, "connector": connector})
    assert settings.connector == ConnectorModes(decimals=DecimalMode.STRING, placeholder="NOPE")
    assert isinstance(settings.input, EngineInput)
    assert settings.input.properties == {
        "heartbeat.interval.ms": "1",
        "unavailable.value.placeholder": "NOPE",
        "decimal.handling.mode": "string",
    }


BAD: list[tuple[dict[str, Any], str]] = [
    # members, and the setting that the error names
    *(
        ({"input": {"engine": ENGINE | {name: value}}}, f"input.engine.{name}")
        for name, value in {"port": 0, "slot": "My slot", "topic_prefix": "a b", "publication": " "}.items()
    ),
    *(
        ({"input": {"kafka": TOPICS | {"bootstrap_servers": servers}}}, "input.kafka.bootstrap_servers")
        for servers in ("broker", "b:1,c", "b:", "SSL://b", ",", "b:1,,c")
    ),
    *(
        ({"input": {"kafka": TOPICS | {"client": {name: "x"}}}}, f"input.kafka.client.{name}")
        for name in ("bootstrap.servers", "auto.offset.reset")
    ),
    ({"signal_table": "signals"}, "signal_table"),
    ({}, "input"),
    ({"input": {"files": {}}}, "input.files.path"),
    ({"input": {"files": {"path": "x"}, "kafka": {}}}, "input"),
    ({"input": {"files": {"path": "x", "paths": "y"}}}, "input.files.paths"),
    ({"input": {"engine": {"host": "h", "database": "d", "user": "u", "spool": ""}}}, "input.engine.spool"),
    (
        {
            "input": {"engine": ENGINE | {"properties": {"time.precision.mode": "connect"}}},
            "connector": {"times": "isostring"},
        },
        "connector.times",
    ),
    ({"input": {"engine": ENGINE | {"properties": {"binary.handling.mode": "no"}}}}, "connector.binary"),
    ({"strategy": "guess"}, "strategy"),
    ({"connector": {"times": "micro"}}, "connector.times"),
    ({"connector": {"placeholder": "hex:F"}}, "connector.placeholder"),
    ({"connector": {"placeholder": ""}}, "connector.placeholder"),
    ({"null_policies": {"*": "nil"}}, "null_policies.*"),
    ({"null_policies": {"numeric(50,10)": "null"}}, "null_policies.numeric(50,10)"),
    ({"keys": {"*": ["id"]}}, "keys.*"),
    ({"ignored_columns": {"public.*": ["secret"]}}, "ignored_columns.public.*"),
    ({"full_identity": ["*"]}, "full_identity.*"),
    ({"table_name": "{schema}"}, "table_name"),
    ({"table_name": "{table}{what}"}, "table_name"),
    ({"table_name": "{table}{"}, "table_name"),
    ({"table_name": "{table}}"}, "table_name"),
    ({"table_name": "{table}_{schema!r}"}, "table_name"),
    ({"table_name": "{table}_{schema:>9}"}, "table_name"),
    ({"partitions": {"(": "public.a"}}, "partitions"),
    ({"partitions": {"x": "a"}}, "partitions"),
    ({"dedup_window_s": 0}, "dedup_window_s"),
    ({"dedup_window_s": NAN}, "dedup_window_s"),
    ({"input": {"kafka": TOPICS | {"transaction_patience_s": NAN}}}, "input.kafka.transaction_patience_s"),
    ({"input": {"kafka": TOPICS | {"timeout_s": NAN}}}, "input.kafka.timeout_s"),
    ({"input": {"engine": ENGINE | {"keep_spool_s": NAN}}}, "input.engine.keep_spool_s"),
    ({"tables": []}, "tables"),
]


@pytest.mark.parametrize(("fields", "setting"), BAD)
def test_bad_settings_name_themselves(fields: dict[str, Any], setting: str) -> None:
    """An error says which setting cannot be as it is."""
    whole = (
        fields if "input" in fields or setting == "input" else {"input": {"files": {"path": "x"}}, **fields}
    )
    with pytest.raises(SettingError) as raised:
        DebeziumSettings.from_fields(whole)
    assert setting == raised.value.setting
