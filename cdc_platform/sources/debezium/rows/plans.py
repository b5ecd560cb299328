"""Plans of tables with the readers of their columns, made once for all events of one form."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from cdc_platform.model.base.names import case_key, is_reserved_column, unfit_columns_reason
from cdc_platform.model.rows.keyless import keyless_columns
from cdc_platform.model.schema.observed_columns import MAY_NOT_FIT
from cdc_platform.model.schema.table_schema import spark_type
from cdc_platform.sources.debezium.settings.connector import NullPolicy
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.values.block_encodings import block_encoding, block_type
from cdc_platform.sources.debezium.values.detector import Detector, detector_of, evidence_of
from cdc_platform.sources.debezium.values.encodings import (
    Encoding,
    EncodingKind,
    agreed_encoding,
    declared_encoding,
)
from cdc_platform.sources.debezium.values.key_faults import key_fault
from cdc_platform.sources.debezium.values.placeholder_zeros import is_zero
from cdc_platform.sources.debezium.values.postgres_types import PostgresType
from cdc_platform.sources.debezium.values.unavailable import masked_markers, version_of
from cdc_platform.sources.debezium.values.values import Read, fits_its_type, reader_of
from cdc_platform.sources.debezium.wire.message_contents import DataEvent, MessageUnusable

_MAX_PLANS: Final = 10_000
_ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """Plan to read one column.

    ``default`` and ``is_nullable`` come from a schema block; ``scale`` is that of a decimal in the lake.
    ``is_always_sent`` means that the detector finds nothing, ``has_default`` that NULL has a default.
    """

    name: str
    encoding: Encoding
    read: Read
    detector: Detector
    default: Any = None
    is_nullable: bool = False
    scale: int | None = None
    is_always_sent: bool = False
    has_default: bool = False

    def may_be_null(self, value: Any) -> bool:
        """Return whether the converter may have replaced NULL by the value."""
        return self.has_default and value is not None and bool(value == self.default)

    def has_content(self, value: Any) -> bool:
        """Return whether a value of the row before a change is real, and no placeholder."""
        return not (value is None or value == self.default or is_zero(self.encoding, value))


@dataclass(frozen=True)
class TablePlan:
    """Plan to read all columns of a table; ``column_types`` is JSON as in `SourceEvent`."""

    keys: tuple[str, ...]
    columns: Mapping[str, ColumnPlan]
    column_types: str

    @cached_property
    def value_columns(self) -> Mapping[str, ColumnPlan]:
        """Plans of the columns outside the key, by name."""
        return {name: column for name, column in self.columns.items() if name not in self.keys}

    @cached_property
    def key_columns(self) -> Sequence[tuple[str, ColumnPlan]]:
        """Plans of the columns of the key, in the order of their names."""
        return [(name, self.columns[name]) for name in sorted(self.keys)]

    @cached_property
    def may_have_float(self) -> bool:
        """Whether a column of the key has floating point numbers."""
        return any(column.encoding.kind is EncodingKind.FLOAT for _, column in self.key_columns)

    @cached_property
    def doubts_null(self) -> bool:
        """Whether NULL in a column may stand for a value that was not sent, unless rows come whole."""
        return any(column.detector.doubts_null for column in self.columns.values())

    @cached_property
    def key_types(self) -> Mapping[str, str]:
        """Types of the key's columns in the lake, by name."""
        return {name: spark_type(self.columns[name].encoding.column_type) for name in sorted(self.keys)}


@dataclass(slots=True)
class Planner:
    """Makes plans, and caches them."""

    settings: DebeziumSettings
    _plans: dict[Any, TablePlan] = field(default_factory=dict)

    def plan(self, event: DataEvent, table: str) -> TablePlan:
        """Return the plan for an event of a table, by its name in the lake.

        Raises:
            MessageUnusable: the type of a column is unknown.
        """
        row = event.after if event.after is not None else event.before or event.key or {}
        keys = self._keys(event, table)
        form = tuple(row) if event.fields is None else event.fields.form
        key_form = None if event.key_fields is None else event.key_fields.form
        identity = (table, event.source.version, keys, form, key_form)
        plan = self._plans.get(identity)
        if plan is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[identity] = self._make(event, table, keys, row)
        return plan

    def _keys(self, event: DataEvent, table: str) -> tuple[str, ...]:
        if event.key is not None:
            return tuple(event.key)
        key_names = self.settings.keys.get(table)
        if key_names is not None:
            return key_names
        if not event.message.has_key:
            raise MessageUnusable(
                f"The event of `{table}` is stored without its key. Set the key columns, "
                f"`keys: {{{table}: [COLUMN, ...]}}`, or `keys: {{{table}: []}}` if the table has no key."
            )
        return ()

    def _make(self, event: DataEvent, table: str, keys: tuple[str, ...], row: Mapping[str, Any]) -> TablePlan:
        fields = {item["field"]: item for item in (*(event.key_fields or ()), *(event.fields or ()))}
        # Converters are set up apart: the key alone may have a block.
        of_row = row if event.fields is None else [item["field"] for item in event.fields]
        left_out = self.settings.ignored_columns.get(table, ())
        names = [name for name in (*keys, *of_row) if name not in left_out]
        _check_names(table, names)
        self._check_keys(table, {name: fields.get(name) for name in keys}, left_out)
        plans = {name: self._column(event, table, name, fields.get(name)) for name in dict.fromkeys(names)}
        if not keys:
            return TablePlan(keys, plans, _keyless_types(plans.values()))
        return TablePlan(keys, plans, column_types(plans.values(), keys))

    def _column(self, event: DataEvent, table: str, name: str, field: Mapping[str, Any] | None) -> ColumnPlan:
        declaration = self._declared_encoding(table, name, field)
        encoding = _encoding(table, name, field, declaration)
        detector = self._detector(event, table, name, field, declaration)
        default, is_nullable = (field or {}).get("default"), (field or {}).get("optional") is True
        scale = encoding.column_type.scale
        return ColumnPlan(
            name,
            encoding,
            reader_of(encoding),
            detector,
            default,
            is_nullable,
            scale,
            is_always_sent=not detector.is_needed,
            has_default=is_nullable and default is not None,
        )

    def _declared_encoding(self, table: str, name: str, field: Mapping[str, Any] | None) -> Encoding | None:
        """Return the encoding of the declared type, or of the type that the connector propagates."""
        known_type = self._known_type(table, name, field)
        return None if known_type is None else declared_encoding(known_type, self.settings.connector)

    def _known_type(self, table: str, name: str, field: Mapping[str, Any] | None) -> PostgresType | None:
        declaration = self.settings.columns.get(table, {}).get(name)
        return PostgresType.parse(declaration) if declaration else block_type(field) if field else None

    def _check_keys(
        self, table: str, fields: Mapping[str, Mapping[str, Any] | None], ignored: Sequence[str]
    ) -> None:
        modes = self.settings.connector
        for name, column in fields.items():
            known_type = self._known_type(table, name, column)
            fault = key_fault(column, known_type, modes, is_ignored=name in ignored)
            if fault is not None:
                raise MessageUnusable(f"The column `{name}` of `{table}` {fault}.")

    def _detector(
        self,
        event: DataEvent,
        table: str,
        name: str,
        field: Mapping[str, Any] | None,
        declaration: Encoding | None,
    ) -> Detector:
        modes = self.settings.connector
        source, shapes = evidence_of(field, declaration, version_of(event.source.version), modes)
        return detector_of(
            shapes,
            modes.placeholder_bytes,
            self._null_policy(table, name, *([declaration.source] if declaration else []), source),
            self._mask(table, name, field),
            is_masked=bool(field and (field.get("parameters") or {}).get("masked") == "true"),
        )

    def _mask(self, table: str, name: str, field: Mapping[str, Any] | None) -> tuple[str, ...]:
        placeholder = self.settings.connector.placeholder_bytes
        mask = self.settings.column_placeholders.get(table, {}).get(name)
        if mask is not None:
            return masked_markers(f"column_placeholders.{table}.{name}", mask, placeholder)
        length = ((field or {}).get("parameters") or {}).get("truncateLength")
        if length is None:
            return ()
        return masked_markers("column_placeholders", f"truncate:{length}", placeholder)

    def _null_policy(self, table: str, name: str, *sources: str) -> NullPolicy:
        policies = {
            # The name of a type as encodings have it, or of a column.
            word if "." in word else PostgresType.parse(word).name: policy
            for word, policy in self.settings.null_policies.items()
        }
        choices = (policies[word] for word in (f"{table}.{name}", *sources, _ANY) if word in policies)
        return next(choices, NullPolicy.ERROR)


def _encoding(
    table: str,
    name: str,
    field: Mapping[str, Any] | None,
    declaration: Encoding | None,
) -> Encoding:
    if field is not None:
        encoding = block_encoding(field)
        return encoding if declaration is None else agreed_encoding(encoding, declaration)
    if declaration is not None:
        return declaration
    raise MessageUnusable(
        f"The event has no schema block, and nothing says what the column `{name}` of `{table}` is: its "
        "JSON alone may be one of several types. Set `schemas.enable=true` in the converters, "
        f"or declare PostgreSQL's type: columns: {{{table}: {{{name}: TYPE}}}}."
    )


def _check_names(table: str, names: Sequence[str]) -> None:
    """Reject columns that the lake cannot have or distinguish, such as names that differ only in case.

    Raises:
        MessageUnusable: there are such columns.
    """
    if (reason := unfit_columns_reason(names)) is not None:
        raise MessageUnusable(f"{reason}, or list the columns that you do not need in `ignored_columns`.")
    names_by_case: dict[str, str] = {}
    for name in names:
        if is_reserved_column(name):
            raise MessageUnusable(
                f"No column of a lake can have the name of the column `{name}` of `{table}`. Name it in "
                "`ignored_columns`, or rename it at the source."
            )
        other = names_by_case.setdefault(case_key(name), name)
        if other != name:
            raise MessageUnusable(
                f"The columns `{other}` and `{name}` of `{table}` differ in case only, and are one to the "
                "lake. Name one of them in `ignored_columns`."
            )


def check_masks(settings: DebeziumSettings) -> None:
    """Check how the settings describe markers.

    Raises:
        SettingError: the description of a marker is unknown.
    """
    for table, masks in settings.column_placeholders.items():
        for name, mask in masks.items():
            masked_markers(f"column_placeholders.{table}.{name}", mask, settings.connector.placeholder_bytes)


def column_types(columns: Any, keys: Sequence[str]) -> str:
    """Return the JSON array for `SourceEvent.column_types`; key columns come first, in their order."""
    places = {name: place for place, name in enumerate(keys)}
    sequence = sorted(columns, key=lambda column: places.get(column.name, len(places)))
    return json.dumps(
        [
            _column_json(column.name, column.encoding, column.name in places, ordinal)
            for ordinal, column in enumerate(sequence, start=1)
        ],
        ensure_ascii=False,
    )


def _keyless_types(columns: Any) -> str:
    entries = json.loads(column_types(columns, ()))
    first = keyless_columns()
    rest = [{**column, "ordinal_position": column["ordinal_position"] + len(first)} for column in entries]
    return json.dumps([*first, *rest], ensure_ascii=False)


def _column_json(name: str, encoding: Encoding, is_key: bool, ordinal: int) -> dict[str, Any]:
    return {
        "name": name,
        "type": encoding.column_type.to_fields(),
        "is_primary_key": is_key,
        "ordinal_position": ordinal,
        **({} if fits_its_type(encoding) else {MAY_NOT_FIT: True}),
    }
