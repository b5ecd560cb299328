"""Templates of the files that `dg scaffold defs COMPONENT NAME` writes for the platform's components."""

import re
from pathlib import Path
from typing import Final

import dagster as dg

_COMMON: Final = """\
  lake:
    # A folder, relative to this file, or a prefix of an object store.
    path: lake
    # Without a catalog: the SQLite file catalog.db in that folder.
    # catalog:
    #   type: rest
    #   uri: https://catalog.example.com
    #   warehouse: gs://my-bucket/lake
"""
_OPTIONS: Final = """\
  # Every version of every row in its own table, and deleted rows that stay in the table with a mark.
  # table_options:
  #   accounts: {{history: true, soft_delete: true}}

  # spark:
  #   master: local[2]
  #   driver_memory: 2g
  #   A running Spark Connect server saves each run the seconds that Spark takes to start:
  #   remote: sc://localhost:15002

  # runs:
  #   Seconds for which a run continues with further cycles; 0 means one cycle per run.
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
    # Time at which the first cycle begins. By default it begins at the source's present, and copies the
    # rows that the tables hold at that time.
    # start_timestamp: "2026-01-31T08:00:00Z"
    # An emulator instead of Spanner; the environment variable SPANNER_EMULATOR_HOST does the same.
    # emulator_host: localhost:9010
""",
    """\
  # Tables to materialise; by default all tables that the change stream watches.
  # tables: [accounts, transfers]

  # Whether to copy the existing rows of tables; by default yes, unless start_timestamp is set.
  # initial_copy: true
""",
)
DATASTREAM: Final = _template(
    "The files of a Datastream stream",
    """\
    # The folder or prefix that the stream writes to.
    path: gs://my-bucket/my-prefix
    # The stream itself; a check then reports if it is paused or has failed.
    # stream: projects/my-project/locations/europe-west1/streams/my-stream
    # Keys of tables whose events contain none.
    # keys:
    #   public.orders: [id]
    # Columns with NULL in updates for a large value that was not sent.
    # null_means_unchanged:
    #   public.orders: [description]
""",
    """\
  # Tables to materialise; by default all tables that have files.
  # tables: [public.orders]
""",
)
DEBEZIUM: Final = _template(
    "Debezium's events of PostgreSQL",
    """\
    # One of these three.
    input:
      files: {{path: events}}
      # kafka: {{bootstrap_servers: "localhost:9092", topics_pattern: "shop[.].*"}}
      # engine: {{host: localhost, database: shop, user: cdc, spool: spool}}
    # Whether the connector has `provide.transaction.metadata`; transactions then stay whole.
    has_transaction_topic: true
    # How to treat large values that the source did not send: omit, veto or enrich.
    # strategy: enrich
    # PostgreSQL types of the columns, if events have no schema block.
    # columns:
    #   public.orders: {{id: bigint, total: "numeric(10,2)"}}
""",
    """\
  # Tables to materialise; by default all tables that have events.
  # tables: [public.orders]
""",
)

TEMPLATES: Final = {
    "SpannerPipeline": SPANNER,
    "DatastreamPipeline": DATASTREAM,
    "DebeziumPipeline": DEBEZIUM,
}
"""The text of a file, by the name of the component's class."""

_UNSAFE: Final = re.compile(r"[^a-z0-9_]+")


class PipelineScaffolder(dg.Scaffolder):
    """Writes a defs.yaml with a comment on each common setting of a kind of pipeline."""

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        """Write the file into the folder that dg created."""
        if request.scaffold_format != "yaml":
            dg.scaffold_component(request)
            return
        template = TEMPLATES[request.type_name.rpartition(".")[2]]
        text = template.format(type_name=request.type_name, name=_pipeline_name(request.target_path))
        path = request.target_path if request.append else request.target_path / "defs.yaml"
        with path.open("a" if request.append else "w", encoding="utf-8") as file:
            file.write(f"---\n{text}" if request.append else text)


def _pipeline_name(folder: Path) -> str:
    name = _UNSAFE.sub("_", folder.name.lower()).strip("_")
    return name if name[:1].isalpha() else f"pipeline_{name}"
