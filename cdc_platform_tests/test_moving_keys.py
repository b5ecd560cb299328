"""Hazards of mutable key ranges: reader, lineage and log over partitions between which keys move."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from cdc_platform.errors import PartitionBoundsInvalid, RetentionExpired, SourceNotFound
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.control import load_lineage, save_lineage
from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.stream.lineage import PartitionState, prune
from cdc_platform.model.stream.read_windows import ReadRequest, ReadWindow, WindowOutcome
from cdc_platform.model.stream.watermark_holders import find_stuck
from cdc_platform.pipeline.checks.lineage_checks import find_violations
from cdc_platform.simulator.history.moving_keys import ChangeKind, MovingKeys, PartitionChange
from cdc_platform.simulator.wire.problems import Refusal
from cdc_platform.simulator.wire.simulator_settings import (
    Dialect,
    Fault,
    PartitionMode,
    SchemaChange,
    SchemaChangeKind,
)
from cdc_platform.sources.spanner.client.chunks import RowAssembler
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.client.query import change_stream_query
from cdc_platform.sources.spanner.source import MAX_WINDOW_S, SpannerSource
from cdc_platform.sources.spanner.stream.window_reader import read_window
from cdc_platform_tests.simulator.histories import ORIGIN, SECOND
from cdc_platform_tests.simulator.in_process import Reading, churning, reading

MUTABLE: Final = PartitionMode.MUTABLE_KEY_RANGE
EVER: Final = 10_000


def moving(seconds: float = 3.0, **chosen: Any) -> Reading:
    """Return a reader at the beginning of a stream whose keys move several times a second."""
    settings: dict[str, Any] = {"partition_life_s": 0.4, "partition_mode": MUTABLE} | chosen
    actual = reading(churning(**settings))
    actual.database.now_micros = ORIGIN + int(seconds * SECOND)
    return actual


def changes_of(actual: Reading, kind: ChangeKind) -> list[PartitionChange]:
    """Return what happened to partitions up to the present."""
    tree, now_micros = actual.database.history.tree, actual.database.now_micros
    assert isinstance(tree, MovingKeys)
    return [change for change in tree.changes if change.kind is kind and change.moment.micros < now_micros]


@pytest.mark.parametrize("kind", list(ChangeKind))
def test_windows_that_end_at_a_change_of_partitions(kind: ChangeKind) -> None:
    """A start, a move or an end right before, at or right after a window's end loses and doubles nothing."""
    whole = moving()
    whole.catch_up()
    moments = sorted({change.moment.micros for change in changes_of(whole, kind)})
    assert len(moments) > 2
    actual = moving()
    for number, micros in enumerate(moments):
        # The window ends one microsecond before the clock.
        actual.database.now_micros = max(actual.watermark_micros + 2, micros + number % 3)
        actual.cycle()
        assert find_violations(actual.lineage) == []
    actual.database.now_micros = whole.database.now_micros
    actual.catch_up()
    assert whole.log == actual.log == actual.truth()


def test_a_move_from_a_partition_that_is_behind() -> None:
    """The partition that has the keys now is read on, and the log waits at the one that had them."""
    probe = moving()
    find = probe.database.history.tree.find
    # Into a partition that there is already.
    moves = [(move, find(move.other_tokens[0])) for move in changes_of(probe, ChangeKind.MOVE_OUT)]
    move = next(move for move, other in moves if other and other.start_micros < move.moment.micros)
    actual = moving(seconds=(move.moment.micros - ORIGIN - 1) / SECOND)
    actual.catch_up()
    watermark = actual.watermark_micros
    actual.database.now_micros = probe.database.now_micros
    for _ in range(3):
        actual.cycle(skipped=move.partition.token)
        assert watermark == actual.watermark_micros
        assert actual.truth() == actual.log
    assert actual.lineage.partitions[move.other_tokens[0]].position_micros > move.moment.micros
    assert actual.waiting
    actual.catch_up()
    assert actual.truth() == actual.log
    assert actual.waiting == {}


def test_lost_retention_of_one_of_two_sources() -> None:
    """Keys move from two partitions into a third, and the records of one are gone: no cut passes the move."""
    probe = moving()
    ended = changes_of(probe, ChangeKind.END)[0]
    before = ended.moment.micros - 1
    actual = moving(seconds=(before - ORIGIN) / SECOND)
    actual.catch_up()
    actual.database.database.faults.demand(Fault.EXPIRED, 1, ended.partition.token, 0)
    actual.database.now_micros = probe.database.now_micros
    for _ in range(3):
        reports = {report.token: report for report in actual.cycle()}
        report = reports[ended.partition.token]
        assert (WindowOutcome.INTERRUPTED, RetentionExpired.__name__) == (report.outcome, report.error_name)
        assert actual.watermark_micros < ended.moment.micros
        assert actual.truth() == actual.log
    others = [partition for partition in actual.lineage.partitions.values() if partition.is_live]
    assert any(partition.position_micros > ended.moment.micros for partition in others)


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("code", ["UNAVAILABLE", "PERMISSION_DENIED"])
def test_a_query_that_fails_after_the_end_has_ended(dialect: Dialect, code: str) -> None:
    """The end of a partition counts, for any outcome of its query: no later start is requested."""
    actual = moving(dialect=dialect)
    ended = changes_of(actual, ChangeKind.END)[0].partition
    service = actual.client.service
    # What it answers is kept.
    assert actual.client.partition_mode.value == MUTABLE.value
    answer = service.execute_streaming_sql

    def failing(request: Any, is_over: Any) -> Iterator[bytes]:
        yield from answer(request, is_over)
        raise Refusal(code, "too late")

    service.execute_streaming_sql = failing  # type: ignore[method-assign] # plays a server that breaks off
    window = ReadWindow(ended.token, ended.start_micros - 1, actual.database.now_micros - 1)
    read = [row for batch in read_window(actual.client, 1, window) for row in batch.to_pylist()]
    assert actual.client.requests[ended.token] == 1
    assert (read[-2]["kind"], read[-1]["read_window"]["outcome"]) == ("partition_end", WindowOutcome.ENDED)
    assert read[-2]["record_timestamp"] == read[-1]["read_window"]["end_inclusive"]


def test_partitions_that_ended_are_stored_and_pruned(tmp_path: Path) -> None:
    """The lineage of a stream whose partitions end without children is stored as it is, and stays small."""
    actual = moving()
    actual.catch_up()
    states = {token: partition.state for token, partition in actual.lineage.partitions.items()}
    assert PartitionState.FINISHED is states.pop(ROOT_TOKEN)
    assert [*states.values()].count(PartitionState.ENDED) > 2
    assert {*states.values()} == {PartitionState.ENDED, PartitionState.RUNNING}
    lake = Lake(LakeSettings(str(tmp_path)), "moving")
    save_lineage(lake, actual.lineage)
    assert actual.lineage == load_lineage(lake)
    pruned = prune(actual.lineage, actual.watermark_micros)
    assert all(partition.is_live for partition in pruned.partitions.values())
    assert find_violations(pruned) == []
    actual.lineage = pruned
    actual.database.now_micros += SECOND
    actual.catch_up()
    assert actual.truth() == actual.log


@pytest.mark.parametrize("dialect", list(Dialect))
def test_windows_of_a_late_reader_are_short(dialect: Dialect) -> None:
    """A query may end half an hour after its start at most, so a reader that was away reads in parts."""
    actual = moving(dialect=dialect, rate=0.01, partition_life_s=EVER)
    source = SpannerSource(actual.client.settings)
    source.__dict__["client"] = actual.client
    actual.database.now_micros = ORIGIN + 3 * 3600 * SECOND
    plan = source.plan(actual.lineage, ReadRequest(actual.database.now_micros), {})
    assert [window.duration_s for window in plan.windows] == [MAX_WINDOW_S]
    shorter = ReadRequest(actual.database.now_micros, max_window_s=60.0)
    assert [window.duration_s for window in source.plan(actual.lineage, shorter, {}).windows] == [60.0]


def test_a_partition_that_is_hours_behind_holds_no_other_back() -> None:
    """The others are read on to the present, and it catches up in parts of the length of a query."""
    actual = moving(rate=0.01, partition_life_s=2000)
    actual.catch_up()
    skipped = next(token for token, partition in actual.lineage.partitions.items() if partition.is_live)
    while actual.database.now_micros < ORIGIN + 3 * 3600 * SECOND:
        actual.database.now_micros += int(MAX_WINDOW_S * SECOND / 2)
        actual.cycle(skipped=skipped)
    others = [
        partition
        for partition in actual.lineage.partitions.values()
        if partition.is_live and partition.token != skipped and skipped not in partition.parent_tokens
    ]
    assert len(others) > 2
    assert max(partition.position_micros for partition in others) == actual.database.now_micros - 1
    assert actual.truth() == actual.log
    for _ in range(12):
        actual.follow()
        assert find_violations(actual.lineage) == []
    actual.catch_up()
    assert actual.truth() == actual.log


def test_options_that_cannot_be_seen_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An account that does not see the mode reads on, until a window would be longer than a query may be."""
    monkeypatch.setattr(SpannerClient, "fetch_options", lambda _client: {})
    actual = moving(rate=0.01, partition_life_s=EVER)
    actual.catch_up()
    actual.database.now_micros += 2 * 3600 * SECOND
    assert all(
        "information_schema.change_stream_options" in report.error_message for report in actual.cycle()
    )
    (report,) = placed().cycle()
    assert "information_schema.change_stream_options" in report.error_message
    assert "per_placement_tvf" in report.error_message


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        (Dialect.GOOGLESQL, ("ChangeRecord", "PROTO", "google.spanner.v1.ChangeStreamRecord")),
        (Dialect.POSTGRESQL, ("read_proto_bytes_bank_changes", "BYTES", "")),
    ],
)
def test_the_only_column_has_messages(dialect: Dialect, expected: tuple[str, str, str]) -> None:
    """The result names the type of its messages, or is bytes of the function that returns them."""
    client, assembler = moving(dialect=dialect).client, RowAssembler()
    arguments = (client.settings.change_stream, ROOT_TOKEN, ORIGIN, ORIGIN + SECOND, 1000)
    assert list(client.stream(change_stream_query(*arguments, client.read_function), assembler))
    (field,) = assembler.fields
    assert expected == (field.name, field.type_.code.name, field.type_.proto_type_fqn)


def placed(**chosen: Any) -> Reading:
    """Return a reader at the beginning of a stream with three placements, the default one included."""
    return moving(placements=("asia", "europe"), **chosen)


def placements_of(actual: Reading) -> set[str]:
    """Return how the read functions of the partitions end that a lineage knows."""
    return {
        token.partition("#")[0].removeprefix(f"{actual.client.whole_function}_")
        for token in actual.lineage.partitions
        if token != ROOT_TOKEN
    }


@pytest.mark.parametrize("dialect", list(Dialect))
def test_placements_are_one_lineage(dialect: Dialect) -> None:
    """Each placement's function is asked for its partitions, and the log is that of the whole database."""
    actual = placed(dialect=dialect)
    for _ in range(2):
        actual.cycle()
    assert {"asia", "europe", "placement_default"} == placements_of(actual)
    actual.catch_up()
    assert find_violations(actual.lineage) == []
    assert actual.truth() == actual.log
    assert actual.waiting == {}


def before_africa() -> Reading:
    """Return a reader that has caught up just before a placement is added."""
    added = SchemaChange(2, SchemaChangeKind.ADD_PLACEMENT, value="africa")
    actual = placed(seconds=1.5, schema_changes=(added,))
    actual.catch_up()
    assert "africa" not in placements_of(actual)
    return actual


@pytest.mark.parametrize("step_s", [0.3, 3.0])
def test_a_placement_that_is_added_is_read(step_s: float) -> None:
    """The next cycle finds its function, whether its first partition is older than the cycle or not."""
    actual = before_africa()
    while actual.database.now_micros < ORIGIN + 6 * SECOND:
        actual.database.now_micros += int(step_s * SECOND)
        actual.cycle()
        assert find_violations(actual.lineage) == []
        assert actual.truth() == actual.log
    actual.catch_up()
    assert "africa" in placements_of(actual)
    assert "africa" in busy_placements(actual)
    assert actual.truth() == actual.log


@pytest.mark.parametrize("code", ["UNAVAILABLE", "PERMISSION_DENIED"])
def test_a_placement_that_is_added_and_fails_at_first(code: str) -> None:
    """Its read is interrupted and holds the watermark, until its function answers."""
    added = SchemaChange(2, SchemaChangeKind.ADD_PLACEMENT, value="africa")
    actual = placed(seconds=1.5, schema_changes=(added,))
    actual.catch_up()
    service = actual.client.service
    answer = service.execute_streaming_sql

    def failing(request: Any, is_over: Any) -> Iterator[bytes]:
        if "_africa" in request.sql:
            raise Refusal(code, "not yet")
        return answer(request, is_over)

    service.execute_streaming_sql = failing  # type: ignore[method-assign] # plays a server that refuses
    for _ in range(3):
        actual.database.now_micros += SECOND
        (report,) = [report for report in actual.cycle() if "_africa" in report.token]
        assert report.outcome is WindowOutcome.INTERRUPTED
        assert actual.watermark_micros == report.end_inclusive_micros
        assert find_violations(actual.lineage) == []
    stuck_ones = find_stuck(actual.lineage, [report], actual.database.now_micros)
    assert [actual.lineage.partitions[report.token].key] == [stuck.key for stuck in stuck_ones]
    service.execute_streaming_sql = answer  # type: ignore[method-assign] # and answers
    actual.catch_up()
    assert "africa" in busy_placements(actual)
    assert actual.truth() == actual.log


def test_a_placement_that_is_younger_than_the_windows_of_a_late_reader() -> None:
    """Its partitions start after the windows, which is not a failure of its read function."""
    added = SchemaChange(2, SchemaChangeKind.ADD_PLACEMENT, value="africa")
    late = placed(seconds=5, schema_changes=(added,))
    present = late.database.now_micros
    late.database.history.advance(present)
    source = SpannerSource(late.client.settings)
    source.__dict__["client"] = late.client
    while late.watermark_micros < present - 1:
        windows = source.plan(late.lineage, ReadRequest(present, max_window_s=0.5), None).windows
        rows = [row for window in windows for row in late.read(late.lineage.cycle + 1, window)]
        assert [row for row in rows if (row["read_window"] or {}).get("error")] == []
        late.take(rows)
        assert find_violations(late.lineage) == []
        assert late.truth() == late.log
    assert "africa" in placements_of(late)


def test_a_placement_that_is_added_while_partitions_are_chosen() -> None:
    """Those that are chosen may hold the watermark, and the placement is found before that continues."""
    added = SchemaChange(2, SchemaChangeKind.ADD_PLACEMENT, value="africa")
    actual = placed(seconds=1.5, schema_changes=(added,))
    actual.catch_up()
    for _ in range(5):
        actual.database.now_micros += SECOND
        for lagging in (True, False):
            behind = actual.lineage.partitions
            oldest = min(partition.position_micros for partition in behind.values() if partition.is_live)
            actual.cycle(
                keys=[
                    partition.key
                    for partition in behind.values()
                    if lagging is (partition.position_micros == oldest)
                ]
            )
            assert find_violations(actual.lineage) == []
            assert actual.truth() == actual.log
    assert "africa" in busy_placements(actual)


def busy_placements(actual: Reading) -> set[str]:
    """Return the placements of the history that have records."""
    history = actual.database.history
    serials = {change.partition for transaction in history.serial() for change in transaction.changes}
    return {history.tree.serial(serial).placement for serial in serials}


def test_a_token_is_of_one_function() -> None:
    """The function of another placement does not know a partition, and neither does the whole stream's."""
    actual = placed()
    actual.catch_up()
    token = next(token for token in actual.lineage.partitions if "_asia#" in token[:-1])
    start = actual.lineage.partitions[token].start_micros
    arguments = start, start + SECOND, 1000
    name = actual.client.settings.change_stream
    assert actual.client.fetch(change_stream_query(name, token, *arguments))
    with pytest.raises(PartitionBoundsInvalid, match="does not belong to the placement TVF"):
        actual.client.fetch(change_stream_query(name, token.replace("_asia#", "_europe#"), *arguments))
    with pytest.raises(SourceNotFound):
        actual.client.fetch(change_stream_query(name, token.partition("#")[2], *arguments))


def test_functions_that_cannot_be_seen_are_an_error() -> None:
    """The error of an account without EXECUTE on any of them says so, and nothing is read."""
    actual = placed()
    assert actual.client.fetch_options()
    # A stream of this name has the same options, and functions that nobody sees.
    actual.client.settings = replace(actual.client.settings, change_stream="bank")
    (report,) = actual.cycle()
    assert WindowOutcome.INTERRUPTED is report.outcome
    assert "no function READ_bank_PLACEMENT" in report.error_message
