"""The bank in a database: statements that change it, and cycles until a cut holds them."""

from typing import TYPE_CHECKING, Any

from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform_tests.servers.bank import BankSettings, open_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write(bank: BankSettings, statements: tuple[str, ...]) -> None:
    """Run statements in one transaction."""

    def execute(transaction: Any) -> None:
        for statement in statements:
            transaction.execute_update(statement)

    with open_database(bank) as database:
        database.run_in_transaction(execute)


def catch_up(pipeline: Pipeline, spark: "SparkSession") -> None:
    """Run cycles until a cut holds all that is committed now."""
    now_micros = pipeline.source.clock_micros()
    while (cut := run_cycle(pipeline, spark).cut) is None or cut.position_micros < now_micros:
        pass
