"""Contents of messages: an envelope, parsed by its types or freely, or a flattened row."""

from msgspec import UNSET

from cdc_platform.sources.debezium.wire.envelope import data_event, read_envelope, sequence_of, transaction_of
from cdc_platform.sources.debezium.wire.flattened import read_flattened
from cdc_platform.sources.debezium.wire.message_contents import OPS, DataEvent, EnvelopeContent, SourceInfo
from cdc_platform.sources.debezium.wire.messages import Message
from cdc_platform.sources.debezium.wire.schema_blocks import SchemaBlock, part_of
from cdc_platform.sources.debezium.wire.typed_envelope import TypedEnvelope


def read_content(message: Message) -> EnvelopeContent:
    """Return the content of a message.

    Raises:
        MessageUnusable: this version cannot use its content.
    """
    payload, block = part_of(message.value)
    if isinstance(payload, TypedEnvelope):
        return _typed(message, payload, block)
    return read_envelope(message) or read_flattened(message)


def _typed(message: Message, envelope: TypedEnvelope, block: SchemaBlock | None) -> DataEvent:
    fields, transaction = envelope.source, envelope.transaction
    schema, table = fields.schema or "", fields.table or ""
    commit_lsn = fields.commit_lsn
    source = SourceInfo(
        fields.name or "",
        fields.db or "",
        schema,
        table,
        fields.version or "",
        fields.snapshot or "false",
        fields.txId,
        fields.lsn,
        sequence_of(fields.sequence),
        None if commit_lsn is UNSET else commit_lsn,
        commit_lsn is not UNSET,
        fields.micros,
        f"{schema}.{table}",
    )
    of_source = "" if source.tx_id is None else str(source.tx_id)
    place = (
        (of_source, None)
        if transaction is None
        else (of_source or transaction_of(transaction.id), transaction.total_order)
    )
    return data_event(message, OPS[envelope.op], source, block, (envelope.before, envelope.after), place)
