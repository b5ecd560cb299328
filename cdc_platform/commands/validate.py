"""`cdc-platform validate`: all mistakes in the files of pipelines."""

import sys
from pathlib import Path

import click

from cdc_platform.commands.common import DEFS, CommandOnDefs, examples
from cdc_platform.printing.lines import print_line


@click.command(
    cls=CommandOnDefs,
    epilog=examples("validate examples/my_bank/defs.yaml", "validate examples"),
)
@DEFS
def validate(defs: Path) -> None:
    """Print the mistakes in the settings of the pipelines in DEFS, each with its file and line.

    It starts no Spark, and reaches neither sources nor lakes. Mistakes of a document that hide others, such
    as a missing or unknown setting, come first.

    The exit code is 1 if there is a mistake.
    """
    from cdc_platform.components.validation import validate_pipelines

    validation = validate_pipelines(defs)
    for finding in validation.findings:
        print_line((finding.describe(), "red"))
    files, pipelines = len(validation.files), len(validation.pipelines)
    if validation.findings:
        print_line(f"{len(validation.findings)} mistakes in {files} files", err=True)
        sys.exit(1)
    print_line((f"{pipelines} pipelines in {files} files can be used", "green"), err=True)
