"""The command line: the group of all commands; each defined in a file below commands/."""

import atexit
import gc
import signal
from importlib.metadata import version
from typing import Any, Final

import click

from cdc_platform.commands.error_texts import expected_error, print_error
from cdc_platform.commands.operating.maintain import maintain
from cdc_platform.commands.operating.quarantine import quarantine
from cdc_platform.commands.operating.sync import sync
from cdc_platform.commands.reading.check import check
from cdc_platform.commands.reading.cuts import cuts
from cdc_platform.commands.reading.explain import explain
from cdc_platform.commands.reading.list import list_pipelines
from cdc_platform.commands.reading.query import query
from cdc_platform.commands.reading.status import status
from cdc_platform.commands.reading.validate import validate
from cdc_platform.commands.servers.dashboard import dashboard
from cdc_platform.commands.servers.demo import demo
from cdc_platform.commands.servers.simulate import simulate
from cdc_platform.commands.servers.spark_server import spark_server
from cdc_platform.printing.lines import print_line
from cdc_platform.printing.progress_display import shown_step
from cdc_platform.stopping import SIGNAL_EXIT

FIRST_STEPS: Final = """\b
See the platform work:
  cdc-platform demo
\b
Run an example, here of Datastream's files:
  cdc-platform sync examples/datastream/defs.yaml
  cdc-platform query examples/datastream/defs.yaml "FROM customers"
\b
Declare and run your own pipeline (or datastream.DatastreamPipeline, debezium.DebeziumPipeline):
  dg scaffold defs cdc_platform.components.spanner.SpannerPipeline my_bank
  cdc-platform validate examples/my_bank/defs.yaml
  cdc-platform sync examples/my_bank/defs.yaml --until-caught-up
  cdc-platform status examples/my_bank/defs.yaml
\b
DEFS is a file or a folder; the variable CDC_PLATFORM_DEFS replaces it:
  export CDC_PLATFORM_DEFS=examples && cdc-platform list

Each command has more examples: cdc-platform COMMAND --help
"""


class Commands(click.Group):
    """A group whose commands are never silent, and end with a message if the platform knows the error."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, and show from now on that it runs, also while it imports libraries."""
        name, command, rest = super().resolve_command(ctx, args)
        if not ctx.resilient_parsing:
            # Python would search a million objects for cycles as it ends, more than a second of a core.
            atexit.register(gc.freeze)
            ctx.with_resource(shown_step(f"cdc-platform {name}"))
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            known_error = expected_error(error)
            if known_error is None:
                raise
            print_error(known_error)
            ctx.exit(1)
        except KeyboardInterrupt:
            print_line("Stopped.", err=True)
            ctx.exit(SIGNAL_EXIT + signal.SIGINT)


@click.group(cls=Commands, epilog=FIRST_STEPS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("cdc_platform"), prog_name="cdc-platform")
def main() -> None:
    """Change data of Spanner, Datastream and Debezium as lakehouse tables.

    The tables are transactionally consistent at every published cut.
    """


for command in (
    *(demo, simulate, list_pipelines, validate, sync, status, dashboard, check),
    *(explain, query, cuts, quarantine, maintain, spark_server),
):
    main.add_command(command)

if __name__ == "__main__":
    main()
