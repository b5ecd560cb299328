"""Reader of one window, to its end or as far as the source allows."""

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, Final

import pyarrow as pa

from cdc_platform.errors import SourceError, SourceUnreachable
from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.stream.generations import PartitionEnd
from cdc_platform.model.stream.read_windows import ReadWindow, WindowOutcome, WindowReport
from cdc_platform.sources.spanner.client.chunks import RowAssembler
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.client.placements import lists_partitions, placed_token, split_token
from cdc_platform.sources.spanner.client.query import change_stream_query
from cdc_platform.sources.spanner.spanner_settings import Dialect
from cdc_platform.sources.spanner.stream.batches import RecordBatchBuilder, window_batch
from cdc_platform.sources.spanner.stream.decode import check_layout, decode_change_record
from cdc_platform.sources.spanner.stream.json_records import check_json_layout, decode_json_record
from cdc_platform.sources.spanner.stream.message_records import decode_message, has_messages
from cdc_platform.sources.spanner.stream.record_rows import START, RecordRow

Decode = Callable[[bytes], list[RecordRow]]
"""Returns the records of a row."""
RecordForm = tuple[Callable[[Any], None], Decode]
"""Functions that check the columns of a query's result, and that return the records of a row."""
RECORD_FORMS: Final[dict[Dialect, RecordForm]] = {
    Dialect.GOOGLESQL: (check_layout, decode_change_record),
    Dialect.POSTGRESQL: (check_json_layout, decode_json_record),
}


def read_window(
    client: SpannerClient, cycle: int, window: ReadWindow
) -> Generator[pa.RecordBatch, None, PartitionEnd | None]:
    """Yield the records of a window, each once, and then the row that reports on it.

    Return how far the partition was read, unless the read was interrupted.

    A failure of the source raises no exception: the report says `interrupted`, with the error, and ends at
    the last timestamp up to which nothing is missing; later records are not returned.
    """
    builder = RecordBatchBuilder(cycle, window)
    error: SourceError | None = None
    if window.token != ROOT_TOKEN and lists_partitions(window.token):
        # Only this announces an added placement, and the report needs it even if the read fails.
        yield builder.announce_itself()
    try:
        yield from _read_to_end(client, builder, window)
    except SourceError as failure:
        # A failure after the partition's last record loses nothing.
        error = failure if builder.end_micros is None else None
        builder.forget_incomplete()
    last = builder.take_all()
    if last.num_rows:
        yield last
    report = _report(builder, window, error)
    yield window_batch(cycle, report, builder.counts)
    if report.outcome is WindowOutcome.INTERRUPTED:
        return None
    return PartitionEnd(window.token, report.end_inclusive_micros, builder.children)


def _report(builder: RecordBatchBuilder, window: ReadWindow, error: SourceError | None) -> WindowReport:
    if error is not None:
        outcome, end_micros = WindowOutcome.INTERRUPTED, builder.complete_micros
    elif builder.child_micros is not None:
        # The children begin at this timestamp, so the partition is complete up to the microsecond before.
        outcome, end_micros = WindowOutcome.FINISHED, builder.child_micros - 1
    elif builder.end_micros is not None:
        outcome, end_micros = WindowOutcome.ENDED, builder.end_micros
    else:
        outcome, end_micros = WindowOutcome.COMPLETE, window.end_inclusive_micros
    message = None if error is None else f"{type(error).__name__}: {error}"
    return WindowReport(window.token, window.start_exclusive_micros, end_micros, outcome, message)


def _read_to_end(
    client: SpannerClient, builder: RecordBatchBuilder, window: ReadWindow
) -> Iterator[pa.RecordBatch]:
    """Query until a record shows that the window is complete, or until a query returns nothing new.

    A stream may end early with OK, which looks like a partition that has been idle since.

    Raises:
        SourceUnreachable: every answer ends earlier than one before it.
    """
    attempts = client.attempts()
    furthest = (0, 0)
    while True:
        yield from _read_with_retries(client, builder, window)
        if builder.is_closed or builder.extent == furthest:
            return
        if builder.extent > furthest:
            furthest = builder.extent
            attempts.reset()
        else:
            attempts.wait_after(
                SourceUnreachable(
                    f"Queries of partition {window.token} keep ending early; if this persists, report it"
                )
            )
        builder.forget_incomplete()


def _read_with_retries(
    client: SpannerClient, builder: RecordBatchBuilder, window: ReadWindow
) -> Iterator[pa.RecordBatch]:
    attempts = client.attempts()
    while True:
        before_micros = builder.complete_micros
        try:
            yield from _read_once(client, builder, window)
        except SourceUnreachable as error:
            if builder.complete_micros > before_micros:
                attempts.reset()
            builder.forget_incomplete()
            if builder.end_micros is not None:
                return
            attempts.wait_after(error)
        else:
            return


def _read_once(
    client: SpannerClient, builder: RecordBatchBuilder, window: ReadWindow
) -> Iterator[pa.RecordBatch]:
    placements = client.fetch_placement_tokens() if window.token == ROOT_TOKEN else ()
    if placements:
        start_micros = window.start_exclusive_micros + 1
        builder.add([RecordRow(START, start_micros, child_partitions=[(token, []) for token in placements])])
        return
    yield from _read_query(client, builder, window)
    if lists_partitions(window.token) and not builder.children and not builder.starts_later:
        raise SourceUnreachable(
            f"A read function of the {client.settings.title} lists no partition, so that records might be "
            f"lost. If this persists, report: {window.token or client.whole_function}"
        )


def _read_query(
    client: SpannerClient, builder: RecordBatchBuilder, window: ReadWindow
) -> Iterator[pa.RecordBatch]:
    query = change_stream_query(
        client.settings.change_stream,
        window.token,
        builder.complete_micros + 1,
        # One microsecond more than needed: records exactly at a query's end are unreliable.
        window.end_inclusive_micros + 1,
        client.settings.heartbeat_ms,
        client.read_function,
    )
    assembler = RowAssembler()
    decode: Decode | None = None
    for row in client.stream(query, assembler):
        if decode is None:
            decode = _decoder(client, assembler.fields, window.token)
        builder.add(decode(row[0]))
        if builder.is_full:
            yield builder.take_complete()


def _decoder(client: SpannerClient, fields: Any, token: str) -> Decode:
    """Return the function that decodes the rows of a result with these columns."""
    function, own_token = split_token(token, client.whole_function)
    if not has_messages(fields):
        check, decode = RECORD_FORMS[client.dialect]
        check(fields)
        return decode
    decode = partial(decode_message, token=own_token)
    return decode if own_token == token else partial(_decode_placed, decode, function)


def _decode_placed(decode: Decode, function: str, change_record: bytes) -> list[RecordRow]:
    """Return records of a placement, whose started partitions get the platform's tokens."""
    return [
        row._replace(
            child_partitions=[
                (placed_token(function, token), parents) for token, parents in row.child_partitions or ()
            ]
        )
        if row.kind == START
        else row
        for row in decode(change_record)
    ]
