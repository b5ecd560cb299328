"""The files that `dg scaffold defs COMPONENT NAME` writes, for each of our components."""

import re
from pathlib import Path
from typing import ClassVar, Final

import dagster as dg

_COMMON: Final = """\
  lake:
    # A folder (relative to this one) or an object store prefix.
    path: lake
    # Without a catalog: the SQLite file catalog.db in that folder.
    # catalog:
    #   type: rest
    #   uri: https://catalog.example.com
    #   warehouse: gs://my-bucket/lake
"""
_OPTIONS: Final = """\
  # Every version of every row in a table of its own, and deleted rows that stay in the table with a mark.
  # table_options:
  #   accounts: {{history: true, soft_delete: true}}

  # spark:
  #   master: local[2]
  #   driver_memory: 2g
  #   A Spark Connect server that stays up makes a run cost seconds less:
  #   remote: sc://localhost:15002

  # runs:
  #   Seconds for which a run goes on with further cycles; 0 means one cycle a run.
  #   follow_s: 600
  #   owners: ["team:data"]
"""

_HEAD: Final = """\
# {title} as tables of a lake. `dg check defs` validates this file,
# `cdc-platform sync THIS_FILE --until-caught-up` runs it without Dagster.
type: {{type_name}}
attributes:
  # Names the lake's namespaces: {{name}} holds the tables, {{name}}__cdc what the platform knows about them.
  name: {{name}}

  source:
"""


def _template(title: str, source: str, tables: str) -> str:
    """Return the text of a pipeline's file, with the parts that its kind of source has."""
    return "".join((_HEAD.format(title=title), source, "\n", _COMMON, "\n", tables, "\n", _OPTIONS))


SPANNER: Final = _template(
    "A Spanner change stream",
    """\
    project: "{{{{ env.GOOGLE_CLOUD_PROJECT }}}}"
    instance: my-instance
    database: my-database
    change_stream: my_change_stream
    # Where the stream begins the very first time; without it at the source's present, after which the
    # rows that the tables hold at that time are copied.
    # start_timestamp: "2026-01-31T08:00:00Z"
    # An emulator instead of Spanner; the variable SPANNER_EMULATOR_HOST does the same.
    # emulator_host: localhost:9010
""",
    """\
  # Tables to materialise; without the list all that the change stream watches.
  # tables: [accounts, transfers]

  # Copy the rows that tables hold already; without it yes, unless there is a start_timestamp.
  # initial_copy: true
""",
)
DATASTREAM: Final = _template(
    "The files of a Datastream stream",
    """\
    # The folder or prefix that the stream writes to.
    path: gs://my-bucket/my-prefix
    # The stream itself, so that a paused or failed one is seen.
    # stream: projects/my-project/locations/europe-west1/streams/my-stream
    # Keys of tables whose events tell none.
    # keys:
    #   public.orders: [id]
    # Columns in whose updates NULL stands for a large value that was not sent.
    # null_means_unchanged:
    #   public.orders: [description]
""",
    """\
  # Tables to materialise; without the list all of which there are files.
  # tables: [public.orders]
""",
)
DEBEZIUM: Final = _template(
    "Debezium's events of PostgreSQL",
    """\
    # One of the three.
    input:
      files: {{path: events}}
      # kafka: {{bootstrap_servers: "localhost:9092", topics_pattern: "shop[.].*"}}
      # engine: {{host: localhost, database: shop, user: cdc, spool: spool}}
    # Whether the connector has `provide.transaction.metadata`, so that transactions stay whole.
    has_transaction_topic: true
    # What becomes of large values that the source did not send: omit, veto or enrich.
    # strategy: enrich
    # PostgreSQL types, where events carry no schema block.
    # columns:
    #   public.orders: {{id: bigint, total: "numeric(10,2)"}}
""",
    """\
  # Tables to materialise; without the list all of which there are events.
  # tables: [public.orders]
""",
)

_UNSAFE: Final = re.compile(r"[^a-z0-9_]+")


class PipelineScaffolder(dg.Scaffolder):
    """Writes a defs.yaml with a comment on everything that is commonly set."""

    template: ClassVar[str]

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        """Write the file into the folder that dg has made."""
        if request.scaffold_format != "yaml":
            dg.scaffold_component(request)
            return
        text = self.template.format(type_name=request.type_name, name=_pipeline_name(request.target_path))
        path = request.target_path if request.append else request.target_path / "defs.yaml"
        with path.open("a" if request.append else "w", encoding="utf-8") as file:
            file.write(f"---\n{text}" if request.append else text)


class SpannerPipelineScaffolder(PipelineScaffolder):
    """Writes that of a change stream."""

    template = SPANNER


class DatastreamPipelineScaffolder(PipelineScaffolder):
    """Writes that of a stream's files."""

    template = DATASTREAM


class DebeziumPipelineScaffolder(PipelineScaffolder):
    """Writes that of Debezium's events."""

    template = DEBEZIUM


def _pipeline_name(folder: Path) -> str:
    name = _UNSAFE.sub("_", folder.name.lower()).strip("_")
    return name if name[:1].isalpha() else f"pipeline_{name}"
