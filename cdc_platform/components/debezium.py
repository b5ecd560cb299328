"""The YAML face of a pipeline that reads Debezium's events of PostgreSQL."""

from pathlib import Path
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import Field

from cdc_platform.components.parts import says
from cdc_platform.components.pipeline import PipelineComponent, resolve_path
from cdc_platform.components.scaffolding import DebeziumPipelineScaffolder
from cdc_platform.components.texts import says_names, says_text, says_texts
from cdc_platform.sources.debezium.settings.kafka_settings import MOST_MESSAGES, PATIENCE_S
from cdc_platform.sources.debezium.settings.settings import DebeziumSettings
from cdc_platform.spark.session.settings import SparkSettings

DAY_S = 24 * 3600.0


class Files(dg.Model, dg.Resolvable):
    """Files of JSON lines, a message a line, in the order of arrival."""

    path: Annotated[
        str,
        says(
            "Folder or object store prefix with the files, which are read in the order of their names. "
            "A relative folder is relative to the folder of this file."
        ),
    ]
    most_unpacked_bytes: Annotated[
        int, says("Bytes of text that a gzip has at most; a file is held in memory.")
    ] = 1024**3


class Kafka(dg.Model, dg.Resolvable):
    """Topics of Kafka."""

    bootstrap_servers: Annotated[str, says_text("Brokers, as `HOST:PORT,HOST:PORT`.")]
    topics_pattern: Annotated[
        str,
        says_text(
            "Regular expression that whole names of topics match, such as `shop[.].*`: of all tables of the "
            "connector, and of its transactions."
        ),
    ]
    options: Annotated[
        dict[str, str], says_texts("Further options of Spark's source, such as `kafka.security.protocol`.")
    ] = Field(default_factory=dict)
    client: Annotated[
        dict[str, str],
        says_texts(
            "Properties of librdkafka, which looks how far topics go, where its names are not those of Java, "
            "such as `ssl.ca.location`."
        ),
    ] = Field(default_factory=dict)
    most_messages: Annotated[int, says("Most new messages that one cycle reads.")] = MOST_MESSAGES
    transaction_patience_s: Annotated[
        float,
        says(
            "Seconds, by the messages' own times, after which a transaction that is still not whole goes to "
            "quarantine, so that others pass."
        ),
    ] = PATIENCE_S
    start_offsets: Annotated[
        dict[str, int],
        says("Per TOPIC/PARTITION the offset to begin at: messages before it are given up."),
    ] = Field(default_factory=dict)


class Engine(dg.Model, dg.Resolvable):
    """Debezium's engine, which runs beside the pipeline; needs the extra `debezium`."""

    host: Annotated[str, says_text("Database server.")]
    database: Annotated[str, says_text("Database.")]
    user: Annotated[str, says_text("Role with LOGIN and REPLICATION that may read the tables.")]
    spool: Annotated[
        str,
        says(
            "Folder into which the engine writes what it captures, until the lake has it; one for each "
            "pipeline, and kept: it knows the position in the database's log. Relative to the folder of "
            "this file."
        ),
    ]
    password: Annotated[str, says_text("The role's password, such as `{{ env.PGPASSWORD }}`.")] = ""
    port: Annotated[int, says("Port of the server.")] = 5432
    tables: Annotated[
        list[str] | None, says_names("Regular expressions of SCHEMA.TABLE; without it all tables.")
    ] = None
    slot: Annotated[str, says_text("Replication slot, made where it is missing.")] = "cdc_platform"
    publication: Annotated[str, says_text("Publication, made where it is missing.")] = "cdc_platform"
    topic_prefix: Annotated[str, says_text("First part of every topic's name.")] = "cdc"
    snapshot: Annotated[
        Literal["initial", "when_needed", "always", "no_data"],
        says(
            "What is read before the changes: all rows when the spool is new (`initial`), also when the slot "
            "no longer has what comes next (`when_needed`), at every start (`always`), or none (`no_data`)."
        ),
    ] = "initial"
    properties: Annotated[dict[str, str], says_texts("Further properties of the connector.")] = Field(
        default_factory=dict
    )
    keep_spool_s: Annotated[
        float, says("Seconds after which files of the spool are deleted that the lake has whole.")
    ] = DAY_S


class Input(dg.Model, dg.Resolvable):
    """Where the events are: exactly one of the three."""

    files: Annotated[Files | None, says("Files of JSON lines.")] = None
    kafka: Annotated[Kafka | None, says("Topics of Kafka.")] = None
    engine: Annotated[Engine | None, says("The engine, straight from PostgreSQL.")] = None


class Source(dg.Model, dg.Resolvable):
    """Where events come from, and what they do not say themselves; tables are named as in the lake."""

    input: Annotated[Input, says("Where the events are.")]
    connector: Annotated[
        dict[str, str],
        says_texts(
            "How the connector was set up, as far as it differs from its defaults: `decimals`, `times`, "
            "`binary`, `intervals`, `hstore`, `placeholder`."
        ),
    ] = Field(default_factory=dict)
    columns: Annotated[
        dict[str, dict[str, str]],
        says("PostgreSQL types per table and column, where events carry no schema block."),
    ] = Field(default_factory=dict)
    keys: Annotated[
        dict[str, list[str]],
        says("Key columns per table, if events are stored without their keys; [] for a table without a key."),
    ] = Field(default_factory=dict)
    ignored_columns: Annotated[
        dict[str, list[str]], says("Columns per table that stay out of the lake, such as generated ones.")
    ] = Field(default_factory=dict)
    column_placeholders: Annotated[
        dict[str, dict[str, str]],
        says(
            "What an unavailable value looks like where the connector masks the column: the text itself, "
            "`truncate:LENGTH`, or `hash:ALGORITHM:SALT[:LENGTH]`."
        ),
    ] = Field(default_factory=dict)
    null_policies: Annotated[
        dict[str, str],
        says_texts(
            "What null means in updates of columns whose type has no marker for an unavailable value: "
            "`unavailable`, `null` or `error`; by TABLE.COLUMN, by type, or `*`."
        ),
    ] = Field(default_factory=dict)
    full_identity: Annotated[
        list[str] | None, says_names("Tables whose replica identity is FULL, where events cannot tell.")
    ] = None
    strategy: Annotated[
        Literal["omit", "veto", "enrich"], says("What becomes of values that the source did not send.")
    ] = "omit"
    has_transaction_topic: Annotated[
        bool, says("Whether the connector provides transaction metadata, so that transactions stay whole.")
    ] = False
    snapshots: Annotated[
        Literal["merge", "replace"], says("What a repeated snapshot does to rows that it does not have.")
    ] = "merge"
    table_name: Annotated[
        str, says("How a table is called in the lake, from {database}, {schema} and {table}.")
    ] = "{schema}.{table}"
    partitions: Annotated[
        dict[str, str],
        says_texts("Regular expressions of SCHEMA.TABLE, each with the SCHEMA.TABLE that it belongs to."),
    ] = Field(default_factory=dict)
    signal_table: Annotated[
        str | None, says_text("SCHEMA.TABLE of the connector's signals, which never becomes a table.")
    ] = None
    dedup_window_s: Annotated[float, says("Seconds for which an event may come again.")] = DAY_S


@dg.scaffold_with(DebeziumPipelineScaffolder)
class DebeziumPipeline(PipelineComponent):
    """Debezium's events of a PostgreSQL database as tables of a lake."""

    source: Annotated[Source, says("The events.")]

    def source_settings(self, folder: Path) -> DebeziumSettings:
        """Return what is told of the events."""
        given: dict[str, Any] = self.source.model_dump()
        given["input"] = {name: fields for name, fields in given["input"].items() if fields is not None}
        files = given["input"].get("files")
        if files is not None:
            files["path"] = resolve_path(folder, files["path"], "input.files.path")
        engine = given["input"].get("engine")
        if engine is not None:
            engine["spool"] = resolve_path(folder, engine["spool"], "input.engine.spool")
            engine["tables"] = engine["tables"] or []
        given["full_identity"] = given["full_identity"] or []
        return DebeziumSettings.from_fields(given)

    def spark_settings(self, folder: Path) -> SparkSettings:
        """Return which Spark does the work; one that reads topics has a source for them."""
        found = super().spark_settings(folder)
        return found if self.source.input.kafka is None else found.with_kafka()
