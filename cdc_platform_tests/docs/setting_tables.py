"""The tables of settings in docs/, made of the dataclasses that declare the settings."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from typing import Any, Final, get_args, get_origin

from cdc_platform.components.pipeline import COPYING, DagsterSettings
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.declared_settings import Setting, is_enumeration, is_group, settings_of
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.pipeline.opened.pipeline_settings import MaintenanceSettings, PipelineSettings
from cdc_platform.sensors import RunSettings
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.debezium.settings.connector import ConnectorModes
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform.spark.launch.spark_settings import SparkSettings

GROUPS: Final[Mapping[str, tuple[type, ...]]] = {
    "pipeline": (PipelineSettings, DagsterSettings),
    "lake": (LakeSettings,),
    "spark": (SparkSettings,),
    "table_options": (TableOptions,),
    "maintenance": (MaintenanceSettings,),
    "runs": (RunSettings,),
    "spanner": (SpannerSettings,),
    "datastream": (DatastreamSettings,),
    "debezium": (DebeziumSettings,),
    "connector": (ConnectorModes,),
    "files": (FilesInput,),
    "kafka": (KafkaInput,),
    "engine": (EngineInput,),
}
"""The dataclasses of each table, by its name in the pages."""

MORE: Final[Mapping[str, str]] = {
    "pipeline.source": "spanner-settings.md",
    "pipeline.lake": "#lake",
    "pipeline.spark": "#spark",
    "pipeline.table_options": "#table-options",
    "pipeline.maintenance": "#maintenance",
    "pipeline.runs": "#runs",
    "pipeline.initial_copy": "initial-copy.md",
    "pipeline.tables": "getting-started.md",
    "pipeline.fail_on_quarantine": "quarantine.md",
    "pipeline.read_tasks": "cluster.md#sizes",
    "pipeline.local_read_s": "cluster.md#sizes",
    "pipeline.local_merge_bytes": "cluster.md#sizes",
    "pipeline.check_every_s": "checks.md#when-they-run",
    "lake.catalog": "cluster.md",
    "lake.table_format_version": "engines.md#format-version",
    "spark.remote": "cluster.md#spark-connect",
    "spark.conf": "cluster.md#credentials",
    "table_options.history": "histories.md",
    "table_options.soft_delete": "histories.md",
    "maintenance.keep_every_cut_s": "lake.md#maintenance",
    "spanner.stuck_after_s": "hazards.md#a-stuck-partition",
    "spanner.nanosecond_columns": "types.md",
    "datastream.path": "datastream.md#where-the-files-may-lie",
    "datastream.stream": "#the-state-of-the-stream",
    "datastream.keys": "datastream-tables.md#keys",
    "datastream.keyless": "datastream-tables.md#tables-without-a-key",
    "datastream.sequence_columns": "datastream-order.md#your-own-order",
    "datastream.backfill_policy": "datastream-order.md#backfills",
    "datastream.epochs": "datastream-order.md#epochs",
    "datastream.null_means_unchanged": "datastream-tables.md#values-that-were-not-sent",
    "datastream.columns": "datastream-types.md#declared-types",
    "datastream.schema_policy": "datastream-tables.md#schema-policies",
    "datastream.deadline_s": "datastream.md#where-the-files-may-lie",
    "debezium.input": "#files",
    "debezium.connector": "#connector-modes",
    "debezium.strategy": "debezium-toast.md#choose-a-strategy",
    "debezium.snapshots": "debezium-tables.md#rows-that-a-repeated-snapshot-lacks",
    "debezium.columns": "debezium-encodings.md#how-the-platform-knows-a-type",
    "debezium.null_policies": "debezium-unavailable.md#null-policies",
    "debezium.column_placeholders": "debezium-unavailable.md#masked-columns",
    "debezium.full_identity": "debezium-unavailable.md#replica-identities",
    "kafka.transaction_patience_s": "debezium-kafka.md#transactions-that-never-become-whole",
    "kafka.start_offsets": "debezium-kafka.md#messages-that-are-gone",
    "engine.snapshot": "debezium-capture.md#what-is-read-before-the-changes",
    "engine.properties": "debezium-capture.md#connector-properties",
}
"""What explains a setting, as a link of its page, by table and setting."""

SECTION: Final = re.compile(r"(<!-- settings: (\w+) -->\n).*?(<!-- end of settings -->)", re.DOTALL)
"""A table in a page, and the comments around it."""

_HEAD: Final = ("| setting | values | default | meaning |", "| --- | --- | --- | --- |")
_PLAIN: Final = {str: "text", int: "integer", float: "number", bool: "`true`, `false`"}
_BYTES: Final = {1 << 30: "GiB", 1 << 20: "MiB"}
_TIMES: Final = {86400: "day", 3600: "hour", 60: "minute"}


def filled(text: str) -> str:
    """Return a page with its tables of settings made again."""
    return SECTION.sub(lambda part: f"{part[1]}\n{table_of(part[2])}\n\n{part[3]}", text)


def table_of(name: str) -> str:
    """Return the Markdown table of a group of settings."""
    settings = [setting for kind in GROUPS[name] for setting in described(kind)]
    return "\n".join((*_HEAD, *(_row(name, setting) for setting in settings)))


def described(kind: type) -> Iterator[Setting]:
    """Yield the settings of a dataclass that the YAML may have."""
    return (setting for setting in settings_of(kind).values() if setting.description is not None)


def _row(group: str, setting: Setting) -> str:
    assert setting.description is not None
    meaning = [setting.description.text]
    if group == "pipeline" and setting.name in COPYING:
        meaning.append("Only with Spanner.")
    if link := MORE.get(f"{group}.{setting.name}"):
        meaning.append(f"[More]({link})")
    cells = (f"`{setting.name}`", _values(setting), _default(setting), " ".join(meaning))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |".replace("|  |", "| |")


def _values(setting: Setting) -> str:
    return (
        "one of " + ", ".join(f"`{name}`" for name in setting.choices)
        if setting.choices
        else _type(setting.kind)
    )


def _type(kind: Any) -> str:
    """Return what a reader may write for a type of a field."""
    container, inner = get_origin(kind), get_args(kind)
    if container is tuple:
        return f"list of {_type(inner[0])}"
    if container is not None:
        return f"map of {_type(inner[1])}"
    if is_enumeration(kind):
        return ", ".join(f"`{member.value}`" for member in kind)
    return "group" if is_group(kind) or kind not in _PLAIN else _PLAIN[kind]


def _default(setting: Setting) -> str:
    value = setting.default
    if value is MISSING:
        return "required"
    if value is None or value in ((), ""):
        return ""
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value)
    if isinstance(value, bool | str):
        return f"`{str(value).lower() if isinstance(value, bool) else value}`"
    return _number(setting.name, value)


def _number(name: str, value: float) -> str:
    """Return a default in figures, with the unit that people use of a long time or of many bytes."""
    units = _BYTES if name.endswith("bytes") else _TIMES if name.endswith("_s") else {}
    text = (str(value) if name == "port" else f"{value:,}").removesuffix(".0")
    for size, unit in units.items():
        if value >= size and value % size == 0:
            count = int(value // size)
            plural = "s" if units is _TIMES and count > 1 else ""
            return f"{text} ({count} {unit}{plural})"
    return text
