"""Databases of an emulator beside the simulated one, at one address."""

import pytest
from google.api_core.exceptions import InvalidArgument
from google.cloud.spanner_v1 import param_types

from cdc_platform.demo.bank import BankSettings, create_instance, open_client
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.settings import SimulatorSettings
from cdc_platform_tests.sources.spanner.servers import connected

pytestmark = pytest.mark.integration

TABLE = "CREATE TABLE progress (token STRING(MAX), watermark INT64) PRIMARY KEY (token)"


def test_other_databases_are_those_of_the_emulator(emulator: str) -> None:
    """A reader makes, writes and reads a database of its own at the address of the simulated one."""
    with Simulator(SimulatorSettings(rate=5, accounts=20, history_s=5), emulator=emulator) as simulator:
        names = simulator.settings
        bank = BankSettings(simulator.host, names.project, "own", "metadata")
        with open_client(bank) as client, connected(simulator) as simulated:
            create_instance(bank, client)
            database = client.instance("own").database("metadata", ddl_statements=[TABLE])
            database.create().result(60)
            with database.batch() as batch:
                batch.insert("progress", ("token", "watermark"), [("a", 7)])
            with database.snapshot() as reading:
                own = list(
                    reading.execute_sql(
                        "SELECT watermark FROM progress WHERE token = @token",
                        {"token": "a"},
                        {"token": param_types.STRING},
                    )
                )
            with simulated.snapshot() as reading:
                accounts = list(reading.execute_sql("SELECT COUNT(*) FROM accounts"))
            with database.snapshot() as reading, pytest.raises(InvalidArgument, match="Table not found"):
                list(reading.execute_sql("SELECT 1 FROM accounts"))

    assert own == [[7]]
    assert accounts[0][0] >= 20
