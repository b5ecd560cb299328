"""Guarantees of a source about its changes; the steps of a cycle do what they leave open."""

from dataclasses import dataclass

from cdc_platform.model.schema.schema_policy import SchemaPolicy


@dataclass(frozen=True)
class SourceCapabilities:
    """The promises of one kind of source.

    Args:
        hands_out_events: whether it hands out events, in files or topics, instead of answering queries up to
            a moment of its own clock. Then a cut lies at the moment of the cycle that read its last event.
        keeps_transactions: whether each record says how many its transaction has, so that the log holds
            transactions whole.
        comes_in_order: whether no change of a row comes after a later change of the row. Where it may, each
            row of the lake has the ordering key of its newest change, and deletions leave deletion markers.
        trusts_inserts: whether a row that the source calls inserted was certainly not there before.
        can_be_compared: whether the source reports its schema and its rows as they were at a cut.
        can_be_copied: whether its tables can be copied as they were at a moment.
        repeats_within_s: for how long an event may come again, in seconds of arrival; None means that what
            comes again comes within one cycle.
        deletion_markers_s: for how long deletions leave deletion markers.
        leaves_values_out: whether changes may lack values that have not changed.
        completes_log: whether the log has these values all the same, found where they were seen last.
        knows_addresses: whether deletes may know their row by its physical address only.
        values_fit: whether every value of an event fits the type that the event declares for its column, so
            that its values need no look where these types are those of its table.
        schema_policies: tables whose columns do not follow the source's, with what becomes of events that
            have others; `*` stands for all that are not named.
    """

    hands_out_events: bool
    keeps_transactions: bool
    comes_in_order: bool
    trusts_inserts: bool
    can_be_compared: bool
    can_be_copied: bool
    repeats_within_s: float | None = None
    deletion_markers_s: float | None = None
    leaves_values_out: bool = False
    completes_log: bool = False
    knows_addresses: bool = False
    values_fit: bool = False
    schema_policies: tuple[tuple[str, SchemaPolicy], ...] = ()

    def schema_policy_of(self, table: str) -> SchemaPolicy:
        """Return what becomes of events whose table had other columns."""
        policies = dict(self.schema_policies)
        return policies.get(table, policies.get("*", SchemaPolicy.EVOLVE))

    def repeats_since_micros(self, micros: int) -> int:
        """Return when an event may have come first that comes again at a moment, at the earliest."""
        return max(0, micros - int((self.repeats_within_s or 0) * 1_000_000))


CHANGE_STREAM = SourceCapabilities(
    hands_out_events=False,
    keeps_transactions=True,
    comes_in_order=True,
    trusts_inserts=True,
    can_be_compared=True,
    can_be_copied=True,
)
"""A Spanner change stream."""
