"""`cdc-platform validate`: all mistakes in pipeline files."""

import sys
from pathlib import Path

import click

from cdc_platform.commands.options import DEFS, CommandOnDefs, examples
from cdc_platform.model.base.quantities import as_count
from cdc_platform.printing.lines import print_line


@click.command(
    cls=CommandOnDefs,
    epilog=examples("validate examples/my_bank/defs.yaml", "validate examples"),
)
@DEFS
def validate(defs: Path) -> None:
    """Print the mistakes in the files of DEFS, with their lines.

    It starts no Spark, and reaches neither sources nor lakes.

    The exit code is 1 if there is a mistake.
    """
    from cdc_platform.components.validation import validate_pipelines

    validation = validate_pipelines(defs)
    for finding in validation.findings:
        print_line((finding.describe(), "red"))
    files = as_count(len(validation.files), "file")
    if validation.findings:
        print_line(f"{as_count(len(validation.findings), 'mistake')} in {files}", err=True)
        sys.exit(1)
    pipelines = as_count(len(validation.pipelines), "pipeline")
    print_line((f"{pipelines} in {files} can be used", "green"), err=True)
