"""Streams with mutable key ranges are refused, by their option and by the form of their records."""

import json
from collections.abc import Iterator

import pytest
from cdc_platform.sources.spanner.stream.partition_mode import MUTABLE_KINDS, check_partition_mode

from cdc_platform.errors import PartitionModeUnsupported, SourceNotFound
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.simulator.wire.simulator_settings import Dialect, PartitionMode
from cdc_platform.sources.spanner.client.query import Query
from cdc_platform.sources.spanner.schema import describe_stream
from cdc_platform.sources.spanner.stream.json_records import decode_json_record
from cdc_platform.sources.spanner.stream.window_reader import read_window
from cdc_platform_tests.simulator.histories import ORIGIN
from cdc_platform_tests.simulator.in_process import InProcessClient, churning
from cdc_platform_tests.sources.spanner.fake_server import to_value

every_dialect = pytest.mark.parametrize("dialect", list(Dialect))


class RenamingClient(InProcessClient):
    """A client that calls PostgreSQL's other read function, for a stream of which no option is seen."""

    def stream(self, query: Query, assembler: object) -> Iterator[list[bytes]]:
        """Yield the rows of the other function."""
        renamed = Query(query.sql.replace("read_json_", "read_proto_bytes_"), query.parameters)
        return super().stream(renamed, assembler)  # type: ignore[arg-type] # handed on


def client(dialect: Dialect, kind: type[InProcessClient] = InProcessClient) -> InProcessClient:
    """Return a client of a stream with mutable key ranges."""
    return kind(churning(dialect, partition_mode=PartitionMode.MUTABLE_KEY_RANGE))


def error_of(client: InProcessClient) -> str:
    """Return the error in the report on the first window."""
    rows = [
        row
        for batch in read_window(client, 1, ReadWindow("", ORIGIN - 1, ORIGIN + 9))
        for row in batch.to_pylist()
    ]
    return str(rows[-1]["read_window"]["error"])


@every_dialect
def test_the_option_is_found_at_start_up(dialect: Dialect) -> None:
    """The stream's description is refused with what to do, before anything is read."""
    with pytest.raises(PartitionModeUnsupported, match="has partition_mode = MUTABLE_KEY_RANGE"):
        describe_stream(client(dialect))


@every_dialect
def test_records_that_are_messages_are_known(dialect: Dialect) -> None:
    """Anyone who does not see the option sees a column of messages, which is never misread."""
    kind = {Dialect.GOOGLESQL: "PROTO", Dialect.POSTGRESQL: "BYTES"}[dialect]
    error = error_of(client(dialect, RenamingClient))
    assert error.startswith(f"PartitionModeUnsupported: The change stream returns a column of {kind}")


def test_the_usual_function_is_not_there_in_postgresql() -> None:
    """The advice of its refusal names the mode as a cause."""
    error = error_of(client(Dialect.POSTGRESQL))
    assert error.startswith(SourceNotFound.__name__)
    assert "partition_mode = MUTABLE_KEY_RANGE" in error


@pytest.mark.parametrize("kind", MUTABLE_KINDS)
def test_records_of_that_mode_as_json_are_known(kind: str) -> None:
    """A record that only such a stream has is no record of another shape."""
    record = to_value(json.dumps({kind: {"record_sequence": "0"}})).SerializeToString()
    with pytest.raises(PartitionModeUnsupported, match=kind):
        decode_json_record(record)


@pytest.mark.parametrize(
    "options", [{}, {"partition_mode": "IMMUTABLE_KEY_RANGE"}, {"per_placement_tvf": "false"}]
)
def test_other_options_pass(options: dict[str, str]) -> None:
    """The mode that this version reads may be named, too."""
    check_partition_mode(options, "stream")


@pytest.mark.parametrize(
    "options", [{"partition_mode": "'MUTABLE_KEY_RANGE'"}, {"per_placement_tvf": "true"}]
)
def test_what_cannot_be_read_is_refused(options: dict[str, str]) -> None:
    """Quoted or not, the mode is known; so are read functions for each placement."""
    with pytest.raises(PartitionModeUnsupported, match=next(iter(options))):
        check_partition_mode(options, "stream")
