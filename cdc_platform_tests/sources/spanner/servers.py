"""Servers of Spanner's API for the suite that all of them must pass: the simulator and the emulator."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from cdc_platform.model.base.timestamps import from_datetime, from_rfc3339, to_datetime
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.simulator_settings import (
    Dialect,
    PartitionMode,
    RecordSequences,
    RootParents,
    SimulatorSettings,
)
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform_tests.servers.bank import ACCOUNTS_DDL, BankSettings, create_instance, open_client
from cdc_platform_tests.sources.spanner.messages import message_record

SIMULATOR: Final = "simulator"
EMULATOR: Final = "emulator"
MOVING: Final = "moving_simulator"
"""The simulator, with mutable key ranges."""
DATA: Final = "data_change_record"
HEARTBEAT: Final = "heartbeat_record"
CHILDREN: Final = "child_partitions_record"
CHANGE_STREAM: Final = "bank_changes"
START: Final = "partition_start_record"
HEARTBEAT_MS: Final = 100
LONGEST_QUERY: Final = timedelta(minutes=20)
"""Of a stream with mutable key ranges, whose queries need an end."""

GOOGLESQL_DDL: Final = (
    ACCOUNTS_DDL,
    f"CREATE CHANGE STREAM {CHANGE_STREAM} FOR ALL OPTIONS (value_capture_type = 'NEW_ROW')",
)
POSTGRESQL_DDL: Final = (
    """CREATE TABLE accounts (
  account_id bigint PRIMARY KEY,
  owner varchar NOT NULL,
  balance bigint NOT NULL,
  opened_on date,
  labels varchar[]
)""",
    f"CREATE CHANGE STREAM {CHANGE_STREAM} FOR ALL WITH (value_capture_type = 'NEW_ROW')",
)


@dataclass(frozen=True)
class Refused:
    """Refusal of a call by a server."""

    code: str
    text: str


@dataclass
class Server:
    """A database with a change stream on a server, reached by the stock client."""

    name: str
    dialect: Dialect
    host: str
    database: Any
    created_micros: int
    simulator: Simulator | None = None

    @property
    def is_googlesql(self) -> bool:
        """Whether the database uses GoogleSQL."""
        return self.dialect is Dialect.GOOGLESQL

    @property
    def has_moving_keys(self) -> bool:
        """Whether keys move between the partitions of the stream."""
        return self.name == MOVING

    def now(self) -> datetime:
        """Return the time of the server."""
        moment: datetime = self.select("SELECT CURRENT_TIMESTAMP")[0][0]
        return moment

    def select(
        self, sql: str, parameters: Mapping[str, tuple[Any, Any]] | None = None, **snapshot: Any
    ) -> list[list[Any]]:
        """Return the rows of a query; parameters are values with their types."""
        values = {name: value for name, (value, _) in (parameters or {}).items()}
        types = {name: of_type for name, (_, of_type) in (parameters or {}).items()}
        with self.database.snapshot(**snapshot) as reading:
            return list(reading.execute_sql(sql, values or None, types or None))

    def stream_sql(self, arguments: str | None = None, stream: str = CHANGE_STREAM) -> str:
        """Return the query of a change stream's read function."""
        if self.is_googlesql:
            names = ("start_timestamp", "end_timestamp", "partition_token", "heartbeat_milliseconds")
            argument_list = arguments or ", ".join(
                f"{name} => @p{n}" for n, name in enumerate(names, start=1)
            )
            return f"SELECT ChangeRecord FROM READ_{stream}({argument_list})"
        form = "read_proto_bytes" if self.has_moving_keys else "read_json"
        return f'SELECT * FROM "spanner"."{form}_{stream}"({arguments or "$1, $2, $3, $4, null"})'

    def read(
        self,
        start: datetime | None,
        end: datetime | None = None,
        token: str | None = None,
        *,
        heartbeat_ms: int | None = HEARTBEAT_MS,
        sql: str | None = None,
        snapshot: Mapping[str, Any] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield the change records of a query, each as an object with the name of its kind."""
        from google.cloud.spanner_v1 import param_types

        if end is None and start is not None and self.has_moving_keys:
            end = start + LONGEST_QUERY
        types = (param_types.TIMESTAMP, param_types.TIMESTAMP, param_types.STRING, param_types.INT64)
        with self.database.snapshot(**(snapshot or {})) as reading:
            rows = reading.execute_sql(
                sql or self.stream_sql(),
                params=dict(zip(("p1", "p2", "p3", "p4"), (start, end, token, heartbeat_ms), strict=True)),
                param_types=dict(zip(("p1", "p2", "p3", "p4"), types, strict=True)),
                timeout=300,
            )
            for row in rows:
                yield message_record(row[0], self.dialect) if self.has_moving_keys else _record(row[0])

    def refusal(self, *arguments: Any, **options: Any) -> Refused:
        """Return how the server refuses a change stream query; fail when it answers."""
        return _refused(lambda: list(self.read(*arguments, **options)))


def _refused(call: Callable[[], Any]) -> Refused:
    from google.api_core.exceptions import GoogleAPICallError

    with pytest.raises(GoogleAPICallError) as caught:
        call()
    code = caught.value.grpc_status_code
    return Refused("UNKNOWN" if code is None else code.name, caught.value.message)


Record = dict[str, Any]
"""A change record: an object with the name of its kind, as PostgreSQL has it."""
Partitions = dict[str, list[Record]]
"""Records by the token of their partition."""


def read_all(server: Server, end_micros: int) -> Partitions:
    """Return the records of all partitions up to a moment, each partition after all its parents."""
    start = to_datetime(server.created_micros)
    partitions: Partitions = {"": list(server.read(start))}
    waiting = children_of(partitions[""])
    while waiting:
        ready = {
            token: (micros, parents)
            for token, (micros, parents) in waiting.items()
            if all(not parent or parent in partitions for parent in parents)
        }
        for token, (start_micros, _) in ready.items():
            del waiting[token]
            if start_micros <= end_micros:
                partitions[token] = list(
                    server.read(to_datetime(start_micros), to_datetime(end_micros), token)
                )
                announced = children_of(partitions[token])
                waiting |= {child: at for child, at in announced.items() if child not in partitions}
    return partitions


def children_of(records: list[Record]) -> dict[str, tuple[int, list[str]]]:
    """Return start and parents of the children that records announce, by token."""
    children = {
        child["token"]: (micros(record), child["parent_partition_tokens"])
        for record in records
        if CHILDREN in record
        for child in record[CHILDREN]["child_partitions"]
    }
    started: dict[str, tuple[int, list[str]]] = {
        token: (micros(record), [])
        for record in records
        if START in record
        for token in record[START]["partition_tokens"]
    }
    return children | started


def data_of(records: list[Record]) -> list[Record]:
    """Return the fields of the data change records among records."""
    return [record[DATA] for record in records if DATA in record]


def micros(record: Mapping[str, Any]) -> int:
    """Return the timestamp of a record of any kind, or of its fields."""
    fields = next(iter(record.values())) if len(record) == 1 and "timestamp" not in record else record
    names = ("commit_timestamp", "start_timestamp", "end_timestamp", "timestamp")
    timestamp = next(fields[name] for name in names if fields.get(name))
    return from_rfc3339(timestamp if isinstance(timestamp, str) else timestamp.rfc3339())


_DATA: Final = (
    *("commit_timestamp", "record_sequence", "server_transaction_id"),
    *("is_last_record_in_transaction_in_partition", "table_name", "column_types", "mods", "mod_type"),
    *("value_capture_type", "number_of_records_in_transaction", "number_of_partitions_in_transaction"),
    *("transaction_tag", "is_system_transaction"),
)


def _record(value: Any) -> dict[str, Any]:
    """Return a change record of either dialect in the form that PostgreSQL's has."""
    if isinstance(value, dict):
        return dict(value)
    ((data, heartbeats, children),) = value
    if data:
        fields = dict(zip(_DATA, data[0], strict=True))
        names = ("name", "type", "is_primary_key", "ordinal_position")
        fields["column_types"] = [dict(zip(names, column, strict=True)) for column in fields["column_types"]]
        fields["mods"] = [
            dict(zip(("keys", "new_values", "old_values"), mod, strict=True)) for mod in fields["mods"]
        ]
        return {"data_change_record": fields}
    if heartbeats:
        return {"heartbeat_record": {"timestamp": heartbeats[0][0]}}
    start, sequence, listed = children[0]
    partitions = [{"token": token, "parent_partition_tokens": parents} for token, parents in listed]
    child = {"start_timestamp": start, "record_sequence": sequence, "child_partitions": partitions}
    return {"child_partitions_record": child}


@contextmanager
def open_simulator(
    dialect: Dialect, partition_mode: PartitionMode = PartitionMode.IMMUTABLE_KEY_RANGE
) -> Iterator[Server]:
    """Yield the simulator with a young stream whose partitions churn, and every form that Spanner has."""
    settings = SimulatorSettings(
        seed=11,
        dialect=dialect,
        accounts=40,
        rate=10,
        partitions=3,
        partition_life_s=1.5,
        history_s=8,
        partition_mode=partition_mode,
        root_parents=RootParents.NULL,
        record_sequences=RecordSequences.MIXED,
    )
    with Simulator(settings) as simulator, connected(simulator) as database:
        name = MOVING if partition_mode is PartitionMode.MUTABLE_KEY_RANGE else SIMULATOR
        yield Server(name, dialect, simulator.host, database, simulator.origin_micros, simulator)


@contextmanager
def connected(simulator: Simulator) -> Iterator[Any]:
    """Yield the simulated database as an object of the stock client."""
    names = simulator.settings
    bank = BankSettings(simulator.host, names.project, names.instance, names.database, names.change_stream)
    with open_client(bank) as client:
        yield client.instance(bank.instance).database(bank.database)


def spanner_settings(simulator: Simulator) -> SpannerSettings:
    """Return the settings with which this platform reads a simulator."""
    names = simulator.settings
    return SpannerSettings(
        names.project,
        names.instance,
        names.database,
        names.change_stream,
        emulator_host=simulator.host,
        backoff_initial_s=0.001,
    )


@contextmanager
def open_on_emulator(host: str, dialect: Dialect) -> Iterator[Server]:
    """Yield a new database on the emulator, with the same stream and a few transactions."""
    definitions = GOOGLESQL_DDL if dialect is Dialect.GOOGLESQL else POSTGRESQL_DDL
    with new_on_emulator(host, f"behaviour-{dialect}", dialect, definitions) as server:
        created = datetime.now(UTC)
        _write_some(server.database)
        assert server.now() > created
        yield server


@contextmanager
def new_on_emulator(host: str, name: str, dialect: Dialect, definitions: Sequence[str]) -> Iterator[Server]:
    """Yield a new database on the emulator, whose change stream has no records yet."""
    from google.cloud.spanner_admin_database_v1.types import DatabaseDialect

    bank = BankSettings(host, database=name)
    with open_client(bank) as client:
        create_instance(bank, client)
        is_googlesql = dialect is Dialect.GOOGLESQL
        database = client.instance(bank.instance).database(
            bank.database,
            ddl_statements=definitions if is_googlesql else (),
            database_dialect=DatabaseDialect.GOOGLE_STANDARD_SQL
            if is_googlesql
            else DatabaseDialect.POSTGRESQL,
        )
        database.create().result(300)
        if not is_googlesql:
            database.update_ddl(definitions).result(300)
        server = Server(EMULATOR, dialect, host, database, 0)
        server.created_micros = from_datetime(server.now())
        yield server


def _write_some(database: Any) -> None:
    columns = ("account_id", "owner", "balance")
    for number in range(10):
        with database.batch() as batch:
            batch.insert_or_update("accounts", columns, [(number, f"Owner {number}", 1000)])
        time.sleep(0.02)
