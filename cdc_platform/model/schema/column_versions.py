"""Versions of a source table's columns, and the columns of the lake's table that result from them.

A column of the source has several versions if it was dropped and added again, or changed its type. The
newest version has the column's name in the lake. An older one is set aside under its own name, such as
`note__string`; it keeps its values and receives no newer ones.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from cdc_platform.model.base.cached_values import cached_value
from cdc_platform.model.base.names import case_key
from cdc_platform.model.base.timestamps import OrderPlace
from cdc_platform.model.schema.table_schema import Column, ColumnLife, ColumnType, TableSchema, spark_type


@dataclass(frozen=True)
class Bound:
    """Begin or end of a version: the cycle of the log that found it, and the place in the order."""

    cycle: int
    place: OrderPlace | None

    @property
    def micros(self) -> int | None:
        """The commit timestamp; None if it is unknown."""
        return None if self.place is None else self.place[0]


@dataclass(frozen=True)
class ColumnVersion:
    """A column of the lake's table; ``before`` is the position of the version that it was converted from.

    ``is_widened`` means that the log has the values of that version in the encoding of this one.
    ``is_late`` means that the column existed before it was watched, so the lake lacks older values.
    ``past_names`` are its former names in the lake, oldest first, which newer columns took.
    """

    name: str
    lake_name: str
    type: ColumnType
    is_primary_key: bool
    ordinal: int
    since: Bound
    until: Bound | None = None
    before: int | None = None
    is_late: bool = False
    past_names: tuple[str, ...] = ()
    is_widened: bool = False

    def is_stored_as(self, name: str, past_names: Container[str]) -> bool:
        """Return whether a table that has or had columns of these names, by `case_key`, stores it as `name`.

        Setting a version aside gives it a new name, so the newest of its names that the table ever had
        decides: if the table has no such column any more, another program has dropped it, and a column of
        an older name is another version.
        """
        names = (case_key(candidate) for candidate in (self.lake_name, *reversed(self.past_names)))
        return next((candidate for candidate in names if candidate in past_names), None) == case_key(name)

    def is_over_at(self, micros: int) -> bool:
        """Return whether this version had ended at the source at a moment; bounds are never too early."""
        return self.until is not None and (self.until.micros or 0) <= micros


Conversion = tuple[ColumnVersion, ColumnVersion]
"""An older version of a column and the newer one that takes over its stored values."""


@dataclass(frozen=True)
class ColumnHistory:
    """All versions of all columns of a source table, in the order in which they came up.

    ``is_created`` means that the table was created while the stream was read, so the log has all its rows.
    ``is_uncopied`` means that it may have had rows before, and that no copy brings them.
    ``beginnings`` has each time at which a dropped table was recreated under this name: rows older than the
    newest of them do not count.
    ``has_gap`` means that the table was not watched for a while. ``places`` are the ordinals of the columns
    outside the key at the last exact schema read, without the columns that changed since.
    ``unwatched`` and ``generated`` are columns that the lake lacks: the change stream does not watch them, or
    cannot send them. ``database`` is that of the table; empty if it is unknown or in the table's name.
    """

    name: str
    versions: tuple[ColumnVersion, ...] = ()
    database: str = ""
    is_watched: bool = True
    is_dropped: bool = False
    is_created: bool = False
    is_uncopied: bool = False
    has_gap: bool = False
    beginnings: tuple[Bound, ...] = ()
    unwatched: tuple[str, ...] = ()
    generated: tuple[str, ...] = ()
    places: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def live(self, name: str) -> ColumnVersion | None:
        """Return the present version of a column at the source, None if the source has no such column."""
        return self._live_by_name.get(name)

    @cached_value
    def _live_by_name(self) -> Mapping[str, ColumnVersion]:
        # Every cycle looks up each column, and a table may have a thousand.
        return {version.name: version for version in reversed(self.live_versions)}

    def observed_since(self, name: str) -> int | None:
        """Return when a column came up, or got a type without conversion; None if it was always there."""
        version = self.live(name)
        while version is not None and version.before is not None:
            version = self.versions[version.before]
        return version.since.micros if version is not None else None

    def lake_name_at(self, name: str, place: OrderPlace) -> str:
        """Return the column of the lake that has what a change at a place set under the source's name."""
        lake_name = name
        newest: int | None = None
        for number in self._numbers_by_name.get(name, ()):
            version = self.versions[number]
            has_begun = version.since.place is None or version.since.place <= place
            # Stored values are converted for a later version.
            if has_begun or (newest is not None and version.before == newest):
                lake_name, newest = version.lake_name, number
        return lake_name

    @cached_value
    def _numbers_by_name(self) -> Mapping[str, Sequence[int]]:
        numbers: dict[str, list[int]] = {}
        for number, version in enumerate(self.versions):
            numbers.setdefault(version.name, []).append(number)
        return numbers

    @property
    def first_cycle(self) -> int:
        """Cycle of the log that found the table."""
        return self.versions[0].since.cycle if self.versions else 0

    @property
    def last_beginning(self) -> Bound | None:
        """When the table was last recreated, None if it never was."""
        return self.beginnings[-1] if self.beginnings else None

    def beginning_after(self, cycle: int) -> Bound | None:
        """Return when the table was last recreated, None if that was not after a cycle."""
        last = self.last_beginning
        return last if last is not None and last.cycle > cycle else None

    @property
    def has_retyped_key(self) -> bool:
        """Whether the log may have several texts for one key, because its columns had other types before."""
        return any(version.is_primary_key and version.until is not None for version in self.versions)

    @property
    def newest_order(self) -> str:
        """The greatest ordering key at which a version of a column began; empty if none has one."""
        return max((version.since.place[1] for version in self.versions if version.since.place), default="")

    @property
    def live_versions(self) -> tuple[ColumnVersion, ...]:
        """The present columns of the source."""
        return tuple(version for version in self.versions if version.until is None)

    @property
    def schema(self) -> TableSchema:
        """The present columns of the source, or the last ones of a dropped table."""
        return _in_order(self.name, (self._column(version) for version in self.live_versions))

    @property
    def whole_schema(self) -> TableSchema:
        """All columns of the lake's table, under their names in the lake."""
        return TableSchema(self.name, tuple(self._column(version) for version in self.versions))

    def with_names(self, name_of: Callable[[str], str]) -> "ColumnHistory":
        """Return the same columns with their names in the lake mapped by `name_of`."""
        versions = (
            replace(
                version,
                lake_name=name_of(version.lake_name),
                past_names=tuple(map(name_of, version.past_names)),
            )
            for version in self.versions
        )
        return replace(self, versions=tuple(versions))

    def schema_after(self, cycle: int) -> TableSchema:
        """Return all columns of the lake's table for changes of the log after a cycle, with their lives.

        A column has a life only if that begins after the cycle, or has an end. Columns that ended before the
        cycle are included: a row that is deleted and inserted again loses its values there.
        """
        return _in_order(self.name, (self._column(version, cycle) for version in self.versions))

    def conversions_after(self, cycle: int, copied_micros: int | None = None) -> tuple[Conversion, ...]:
        """Return the conversions of stored values that are due after a cycle, in order.

        With the moment of a copy, conversions before that moment are left out: the copied values have them.
        """
        return tuple(
            (self.versions[version.before], version)
            for version in self.versions
            if version.before is not None
            and version.since.cycle > cycle
            and (copied_micros is None or (version.since.micros or 0) > copied_micros)
        )

    def version_stored(
        self, name: str, type_text: str, copied_micros: int | None, past_names: Container[str]
    ) -> ColumnVersion | None:
        """Return the version whose values a column of the table contains.

        A copy may be newer than the oldest version that the log has. The type decides; among versions of
        that type, the first that had not ended at the moment of the copy.

        Args:
            name: the column's name in the table.
            type_text: the column's type in Spark's SQL.
            copied_micros: the moment of the table's copy, None without a copy.
            past_names: names of all columns that the table has or had, by `case_key`.
        """
        versions = [version for version in self.versions if version.is_stored_as(name, past_names)]
        of_type = [
            version for version in versions if _plain_type(spark_type(version.type)) == _plain_type(type_text)
        ]
        candidates = of_type or versions
        live_versions = [
            version
            for version in candidates
            if copied_micros is None or not version.is_over_at(copied_micros)
        ]
        return next(iter(live_versions or candidates), None)

    def _column(self, version: ColumnVersion, after_cycle: int | None = None) -> Column:
        is_key = version.is_primary_key and version.until is None
        life = None if after_cycle is None else self._life(version, after_cycle)
        return Column(version.lake_name, version.type, is_key, version.ordinal, life)

    def _life(self, version: ColumnVersion, cycle: int) -> ColumnLife | None:
        is_young = version.since.cycle > cycle
        since = version.since.place if is_young else None
        until = version.until.place if version.until is not None else None
        before = None
        if is_young and version.before is not None:
            before = self._column(self.versions[version.before], cycle)
        if since is None and until is None and version.lake_name == version.name:
            return None
        was_key = version.is_primary_key and version.until is not None
        return ColumnLife(version.name, since, until, before, was_key, version.is_widened)


def _plain_type(text: str) -> str:
    return text.replace(" ", "").lower()


def _in_order(name: str, columns: Iterable[Column]) -> TableSchema:
    return TableSchema(
        name, tuple(sorted(columns, key=lambda column: (not column.is_primary_key, column.ordinal)))
    )
