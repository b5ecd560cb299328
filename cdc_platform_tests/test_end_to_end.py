"""End to end as a user: real processes, a bank that writes, and unannounced kills."""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from cdc_platform.components.loading import load_settings
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.copies import load_copy_progress, load_plans
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.pipeline.cycle_loop import follow_source
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform_tests.emulator_fixtures import BankStream, change_schema, make_bank, required
from cdc_platform_tests.programs import BANK, COMMAND_LINE, Program, running_demo, start
from cdc_platform_tests.servers.bank import BankSettings, open_database, sum_of_balances
from cdc_platform_tests.servers.spanner_emulator import Emulator, find_emulator
from cdc_platform_tests.spark_fixtures import TEST_SPARK, require_java
from cdc_platform_tests.support.pipelines import CHECKS
from cdc_platform_tests.support.workloads.traffic import check_end
from cdc_platform_tests.yaml_files import TYPE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.long]

WITHIN_S: Final = 600.0
"""A busy machine is slow, not wrong."""

SEED: Final = 3
LONGEST_LIFE_S: Final = 5.0
TRANSFERS_A_SECOND: Final = 25
NAME: Final = "killed"
TOKEN_LIFE_S: Final = 10
"""Partitions split and merge in every life of the pipeline, but not by dozens."""

CHANGES: Final = (
    (
        ("ALTER TABLE accounts ADD COLUMN remark STRING(MAX)",),
        "UPDATE accounts SET remark = 'added' WHERE account_id < 10",
    ),
    (
        ("ALTER TABLE accounts ALTER COLUMN remark BYTES(MAX)", "ALTER TABLE transfers ADD COLUMN more DATE"),
        "UPDATE accounts SET remark = b'retyped' WHERE account_id < 5",
    ),
    (
        (
            "ALTER TABLE accounts DROP COLUMN remark",
            "ALTER TABLE accounts ADD COLUMN remark INT64",
        ),
        "UPDATE accounts SET remark = 3 WHERE account_id < 3",
    ),
)
"""Changes of the source before each start of the pipeline; old values are kept, new ones arrive."""


@dataclass(frozen=True)
class Declared:
    """A pipeline of a bank, and the folder of its file and of what its commands say."""

    bank: BankSettings
    folder: Path

    @property
    def defs(self) -> Path:
        """The pipeline's file."""
        return self.folder / "defs.yaml"

    def open(self) -> Pipeline:
        """Return the pipeline."""
        return open_pipeline(load_settings(self.defs))

    def start(self, command: str, *options: str | Path) -> AbstractContextManager[Program]:
        """Return a command of the pipeline that runs."""
        log = self.folder / f"{command}-{time.monotonic_ns()}.log"
        return start(log, COMMAND_LINE, command, self.defs, *options)


def declare(stream: BankStream, folder: Path, lake: LakeSettings) -> Declared:
    """Write a pipeline's file; it copies the bank as it finds it, in small chunks and few at a time."""
    source = {
        "project": stream.spanner.project,
        "instance": stream.spanner.instance,
        "database": stream.spanner.database,
        "change_stream": stream.spanner.change_stream,
        "emulator_host": stream.spanner.emulator_host,
    }
    pace = {"idle_interval_s": 0.2, "copy_chunk_rows": 10, "copy_s": 2}
    spark = {"conf": {**TEST_SPARK.conf}}
    attributes = {"name": NAME, "source": source, "lake": {"path": lake.path}, "spark": spark, **pace}
    declared = Declared(stream.bank, folder)
    declared.defs.write_text(yaml.safe_dump({"type": TYPE, "attributes": attributes}), encoding="utf-8")
    return declared


@contextmanager
def writing_bank(declared: Declared) -> Iterator[Program]:
    """Yield the writer of a bank."""
    arguments = ("--host", declared.bank.host, "--database", declared.bank.database)
    pace = ("--rate", str(TRANSFERS_A_SECOND), "--seed", str(SEED))
    with start(declared.folder / "bank.log", BANK, *arguments, *pace) as writer:
        yield writer
        assert writer.process.poll() is None, writer.output()


def kill_at_random(declared: Declared, chance: random.Random) -> None:
    """Run the pipeline, and kill its process group in one of its first cycles."""
    with running_for_a_while(declared, chance) as program:
        program.kill_group()


def stop_at_random(declared: Declared, chance: random.Random) -> None:
    """Run the pipeline, and ask all its processes to end in one of its first cycles: all goes quietly."""
    with running_for_a_while(declared, chance) as program:
        before = program.output()
        os.killpg(program.process.pid, signal.SIGTERM)
        assert program.ends_with(WITHIN_S) in {0, 128 + signal.SIGTERM}
        first, *rest = program.output().removeprefix(before).splitlines()
    assert first == "Stopping once the running work is done; a second signal stops at once."
    # Lines of progress, such as `copy: 13 s so far`, show that a slow machine still works.
    unknown = [
        line for line in rest if not line.startswith(("cycle ", "Stopped")) and not line.endswith("so far")
    ]
    assert unknown == []


@contextmanager
def running_for_a_while(declared: Declared, chance: random.Random) -> Iterator[Program]:
    """Yield the pipeline, running, in one of its first cycles."""
    with declared.start("sync", "--continuous") as program:
        program.wait_for("Spark is ready", WITHIN_S)
        time.sleep(chance.uniform(0, LONGEST_LIFE_S))
        assert program.process.poll() is None, program.output()
        yield program


def change_bank(bank: BankSettings, number: int) -> None:
    """Make one of the changes to the bank's tables, and write something that has it."""
    definitions, statement = CHANGES[number]
    with open_database(bank) as database:
        change_schema(database, definitions, WITHIN_S)
        database.run_in_transaction(lambda transaction: transaction.execute_update(statement))


def catch_up(pipeline: Pipeline, spark: "SparkSession") -> None:
    """Run cycles until all copies are complete, and all that is committed now is published."""
    target_micros = pipeline.source.clock_micros() - 1
    for outcome in follow_source(pipeline, spark, lambda: True, max_failures=1):
        is_there = outcome.cut is not None and outcome.cut.position_micros >= target_micros
        if is_there and not outcome.copy.is_pending:
            return


def sum_of_table(lake: Lake) -> int:
    """Return the sum of all balances as readers of the lake see it."""
    table = lake.table("accounts")
    assert table is not None
    return sum(table.scan(selected_fields=("balance",)).to_arrow()["balance"].to_pylist())


def test_the_demo_proves_itself(tmp_path: Path) -> None:
    """The demo without a UI stops by itself, prints the results of its checks, and exits with 0."""
    require_java()
    with running_demo(tmp_path, "--seconds", "2", "--rate", "40", "--no-ui") as demo:
        code = demo.ends_with(WITHIN_S)
    output = demo.output()
    assert code == 0, output
    assert all(f"ok     {check.name} " in output for check in CHECKS)
    assert "Sum of balances: 1,000,000 in Spanner" in output


def test_killed_at_random_moments(spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path) -> None:
    """A pipeline that is killed or asked to end at any moment, also while it copies, loses nothing.

    The last catch-up and the checks are made in the session of the tests, which is warm. `benchmarks/kill.py`
    kills a hundred times, and `pipeline/test_crash_points.py` lets processes die at every effect.
    """
    chance = random.Random(SEED)  # noqa: S311  a test's moments, not a secret
    with required(), Emulator(find_emulator(), TOKEN_LIFE_S) as emulator:
        declared = declare(make_bank(emulator.host, NAME), tmp_path, session_lake)
        with writing_bank(declared):
            for number, end in enumerate((kill_at_random, stop_at_random)):
                change_bank(declared.bank, number)
                end(declared, chance)
            change_bank(declared.bank, len(CHANGES) - 1)
        pipeline = declared.open()
        catch_up(pipeline, spark)
        check_end(pipeline, spark)
        with open_database(declared.bank) as database:
            assert sum_of_balances(database) == sum_of_table(pipeline.lake)
        pipeline.source.close()
    fields = ("table_name", "record_id", "mod_ordinal")
    log = pipeline.lake.system_table(LOG).scan(selected_fields=fields).to_arrow()
    assert len(log) == len(log.group_by(list(fields)).aggregate([])) > 0
    plan = load_plans(pipeline.lake)["accounts"]
    copied = load_copy_progress(pipeline.lake.table("accounts"), plan)
    assert len(plan.chunks) > 1
    assert copied.is_complete
