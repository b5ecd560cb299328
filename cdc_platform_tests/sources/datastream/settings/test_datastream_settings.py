"""Settings of Datastream's source: what is refused, and their JSON form."""

from dataclasses import replace
from typing import Any

import pytest

from cdc_platform.errors import SettingError
from cdc_platform.model.schema.schema_policy import SchemaPolicy
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.settings.kinds import SourceKind
from cdc_platform.sources.datastream.settings.policies import BackfillPolicy, KeylessPolicy, OrderBy

FULL = DatastreamSettings(
    path="gs://bucket/prefix",
    source=SourceKind.POSTGRESQL,
    stream="projects/p/locations/l/streams/s",
    table_name="{schema}_{table}",
    keys={"public_a": ("x", "y")},
    keyless={"*": KeylessPolicy.ROW_HASH, "public_log": KeylessPolicy.APPEND},
    sequence_columns={"public_a": "seq"},
    backfill_policy=BackfillPolicy.FORCE,
    epochs=("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"),
    binlog_basenames=("a", "b"),
    order_by=OrderBy.TIMESTAMP,
    null_means_unchanged={"public_a": ("body",)},
    columns={"public_a": {"n": "DECIMAL(65,30)"}},
    schema_policy={"public_a": SchemaPolicy.FREEZE},
    deletion_marker_retention_s=900_000.0,
    late_files_s=60.0,
    deadline_s=30.0,
)


@pytest.mark.parametrize("settings", [DatastreamSettings("files"), FULL])
def test_settings_survive_the_way_to_a_worker(settings: DatastreamSettings) -> None:
    """The JSON form gives equal settings."""
    assert settings == DatastreamSettings.from_options(settings.to_options())


@pytest.mark.parametrize(
    ("fields", "setting", "message"),
    [
        ({"path": " "}, "path", "is empty"),
        ({"path": "oss://bucket/p"}, "path", "has the unsupported scheme `oss`; write"),
        ({"source": "db2"}, "source", "must be one of mysql, oracle"),
        ({"stream": "my-stream"}, "stream", "must look like projects/PROJECT"),
        ({"table_name": "{schema}"}, "table_name", "must contain {table}, and may contain"),
        ({"table_name": "{table}_{shard}"}, "table_name", "must contain {table}, and may contain"),
        ({"table_name": "{table"}, "table_name", "must contain {table}, and may contain"),
        ({"table_name": "{table!r}"}, "table_name", "must contain {table}, and may contain"),
        ({"table_name": "{table:>9}"}, "table_name", "must contain {table}, and may contain"),
        ({"keys": {"t": ()}}, "keys.t", "different column names"),
        ({"keys": {"t": "id"}}, "keys.t", "different column names"),
        ({"keys": {"t": ("a", "a")}}, "keys.t", "different column names"),
        ({"keyless": {"t": "drop"}}, "keyless.t", "must be one of append, row_hash, refuse"),
        ({"sequence_columns": {"t": ""}}, "sequence_columns.t", "is empty"),
        ({"backfill_policy": "never"}, "backfill_policy", "must be one of initial"),
        ({"backfill_policy": "force"}, "epochs", "`backfill_policy` force would repair nothing"),
        ({"epochs": ("yesterday",)}, "epochs", "must look like"),
        ({"epochs": ("2026-02-01T00:00:00Z", "2026-01-01T00:00:00Z")}, "epochs", "must ascend"),
        ({"binlog_basenames": ("a", "a")}, "binlog_basenames", "different names"),
        ({"order_by": "lsn"}, "order_by", "must be one of position, timestamp"),
        ({"null_means_unchanged": {"t": ("",)}}, "null_means_unchanged.t", "different column names"),
        ({"columns": {"t": {"c": " "}}}, "columns.t.c", "write the column's type"),
        ({"columns": {"t": {"c": "VARCHAR"}}}, "columns.t.c", "is not a type: 'VARCHAR'; a type is BOOL"),
        ({"schema_policy": {"t": "ignore"}}, "schema_policy.t", "must be one of evolve, freeze"),
        ({"late_files_s": 0}, "late_files_s", "must be above 0, but is: 0"),
        ({"late_files_s": float("nan")}, "late_files_s", "must be a finite number"),
        ({"late_files_s": float("inf")}, "late_files_s", "must be a finite number"),
        ({"deadline_s": 0.0}, "deadline_s", "must be above 0"),
        (
            {"deletion_marker_retention_s": 60.0},
            "deletion_marker_retention_s",
            "must be at least `late_files_s`",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(fields: dict[str, Any], setting: str, message: str) -> None:
    """An error names the setting and what to write instead."""
    with pytest.raises(SettingError, match=f"`{setting}`") as refused:
        DatastreamSettings(**{"path": "files", **fields})
    assert (setting, True) == (refused.value.setting, message in refused.value.problem)


def test_a_caller_that_cannot_wait_has_a_shorter_deadline() -> None:
    """But never a longer one than the settings say, and everything else stays."""
    assert replace(FULL, deadline_s=5.0) == FULL.with_deadline(5.0)
    assert FULL.with_deadline(99.0) == FULL


def test_settings_of_a_table_go_before_those_of_all() -> None:
    """A star stands for every table that a setting does not name."""
    assert KeylessPolicy.APPEND is FULL.keyless_policy("public_log")
    assert KeylessPolicy.ROW_HASH is FULL.keyless_policy("other")
    assert SchemaPolicy.EVOLVE is FULL.schema_policy_of("other")
    assert FULL.declared_key("public_a") == ("x", "y")
    assert FULL.declared_key("other") == ()


@pytest.mark.parametrize("named", ["shop.visits", "db.shop.visits", "visits_of_shop"])
def test_settings_call_tables_as_the_source_or_as_the_lake_does(named: str) -> None:
    """With a template both names mean the table, and none means another one."""
    settings = DatastreamSettings(
        "files",
        table_name="{table}_of_{schema}",
        keys={named: ("id",)},
        keyless={named: KeylessPolicy.REFUSE},
        sequence_columns={named: "seq"},
        null_means_unchanged={named: ("body",)},
        schema_policy={named: SchemaPolicy.FREEZE},
    )
    for table, expected in (("visits_of_shop", True), ("visits_of_bank", False), ("visits", False)):
        actual = (
            settings.declared_key(table) == ("id",),
            settings.keyless_policy(table) is KeylessPolicy.REFUSE,
            settings.sequence_column(table) == "seq",
            settings.protected_columns(table) == ("body",),
            settings.schema_policy_of(table) is SchemaPolicy.FREEZE,
            settings.capabilities.schema_policy_of(table) is SchemaPolicy.FREEZE,
        )
        assert (expected,) * 6 == actual
