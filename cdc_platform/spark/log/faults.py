"""Faults that keep a change out of the log, detected without other changes."""

import json
from collections.abc import Sequence

from cdc_platform.model.base.names import quote_text
from cdc_platform.model.schema.table_schema import DECIMAL, ColumnType, TableSchema
from cdc_platform.model.stream.source_capabilities import CHANGE_STREAM, SourceCapabilities
from cdc_platform.spark.frames.casts import (
    LONGEST_TEXT,
    is_wide,
    key_unfit_expression,
    parsed_object,
    shown_expression,
    unfit_expression,
    unfit_names_expression,
)

FAULT = "fault"
FITS = "values_fit"
"""Column that marks changes whose values are known to fit their table, and need no check."""
KEYS, VALUES = "key_texts", "value_texts"
HAS_KEYS = "keys NOT IN ('null', '{}')"
"""Condition of changes with a key that has columns; the emulator writes other keys as null."""
UNSOUND_FAULT = (
    "a text of the record is not Unicode (half of a surrogate pair), or a number of it is beyond 64 bits"
)
SHAPE_FAULT = "the record does not have the shape that the source documents; report it with its text: "
IS_MALFORMED = "number_of_records_in_transaction IS NULL AND mod_type IS NULL"
"""Condition of records that the reader could not decode, so that it omitted their parts."""
LONG_FAULT = (
    f"a text of the record has more than {LONGEST_TEXT:,} characters, which Spark does not read: shorten it "
    "at the source, or leave its column out"
)
LACKING_FAULT = "the record does not say which row of which table it changes, or in which known way"
_NO_OBJECT = "are not a JSON object, or one that is too deep for Spark"
KEYS_FAULT = f"the keys of the change {_NO_OBJECT}"
VALUES_FAULT = f"the new values of the change {_NO_OBJECT}"

_HAS_PARTS = (
    "table_name IS NOT NULL AND server_transaction_id IS NOT NULL AND (mod_type = 'TRUNCATE'"
    " OR mod_type IN ('INSERT', 'UPDATE', 'DELETE', 'SNAPSHOT') AND mod.keys IS NOT NULL)"
)
# Among texts of this size that a decoder has passed, Spark rejects only those that are too long.
_IS_LONG = " OR ".join(
    f"{parsed} IS NULL AND length(mod.{part}) > {LONGEST_TEXT}"
    for parsed, part in ((KEYS, "keys"), (VALUES, "new_values"))
)
MAX_COMPILED_COLUMNS = 200
"""Maximum number of columns of all tables of a window for which each has its own condition.

Spark compiles these: ordering then takes a fifth less processor time. It analyses those of hundreds of tables
for a minute."""
_HAS_ROW = "mod_type <> 'TRUNCATE'"
_NAMES, _KEY_FIELD = "names", "of_key"
_LACKS_KEY = "concat('the keys lack `', {n}, '` of `', table_name, '`')"
_DECLARED = (
    "'array<struct<name:string,is_primary_key:boolean,type:struct<code:string,type_annotation:string,"
    "array_element_type:struct<code:string>>>>'"
)


def parsed_mods(where: str = "true") -> list[str]:
    """Return the SQL of the columns that `fault_of` checks: a mod's keys and new values by name."""
    texts = {KEYS: "if(mod.keys = 'null', '{}', mod.keys)", VALUES: "mod.new_values"}
    return [f"if({where}, {parsed_object(text)}, null) AS {name}" for name, text in texts.items()]


def fault_of(tables: Sequence[TableSchema], capabilities: SourceCapabilities = CHANGE_STREAM) -> str:
    """Return the SQL of the reason why a change is invalid, as text; NULL if it is valid.

    An invalid change lacks required fields, contains invalid JSON, or has a value that does not fit the type
    of its column and would be NULL in the table.
    """
    unfit = f"WHEN {_HAS_ROW} THEN {_unfit(tables, capabilities)}" if tables else ""
    shape = {_IS_LONG: LONG_FAULT}
    malformed_fault = ""
    if capabilities.keeps_transactions:
        # A reader that had to sanitise a record omits its count, and for a malformed record also its type.
        shape["number_of_records_in_transaction IS NULL"] = UNSOUND_FAULT
        about = f"concat({quote_text(SHAPE_FAULT)}, coalesce(mod.old_values, ''))"
        malformed_fault = f"WHEN {IS_MALFORMED} THEN {about}"
    shape |= {
        f"NOT coalesce({_HAS_PARTS}, false)": LACKING_FAULT,
        f"{_HAS_ROW} AND {KEYS} IS NULL": KEYS_FAULT,
        f"{_HAS_ROW} AND mod.new_values IS NOT NULL AND {VALUES} IS NULL": VALUES_FAULT,
    }
    cases = " ".join(f"WHEN {condition} THEN {quote_text(reason)}" for condition, reason in shape.items())
    return f"CASE {malformed_fault} {cases} {unfit} END"


def _unfit(tables: Sequence[TableSchema], capabilities: SourceCapabilities) -> str:
    """Return the SQL of a fault among the keys and values of a change."""
    columns = sum(len(table.columns) for table in tables)
    is_compiled = columns <= MAX_COMPILED_COLUMNS and not any(map(is_wide, tables))
    return _unfit_by_column(tables, capabilities) if is_compiled else _unfit_by_type(tables, capabilities)


def _unfit_by_column(tables: Sequence[TableSchema], capabilities: SourceCapabilities) -> str:
    """Return the SQL for few columns: a condition of each, which Spark compiles."""
    branches = " ".join(
        f"WHEN {quote_text(table.name)} THEN {_table_fault(table, capabilities)}" for table in tables
    )
    return f"CASE table_name {branches} END"


def _table_fault(table: TableSchema, capabilities: SourceCapabilities) -> str:
    names = [quote_text(column.name) for column in table.key_columns]
    lacks = (f"CASE WHEN NOT map_contains_key({KEYS}, {n}) THEN {_LACKS_KEY.format(n=n)} END" for n in names)
    keys = (_column_fault(KEYS, column.name, column.type) for column in table.key_columns)
    key_fault = f"coalesce({', '.join([*lacks, *filter(None, keys)])}, NULL)" if names else "NULL"
    if names and not capabilities.delivers_events:
        key_fault = _unless_recreated(key_fault, f"array({', '.join(names)})")
    values = (_column_fault(VALUES, column.source_name, column.type) for column in table.value_columns)
    return f"coalesce({', '.join([key_fault, *filter(None, values)])}, NULL)"


def _column_fault(texts: str, name: str, kind: ColumnType) -> str | None:
    """Return the SQL of the fault of one column; None if all texts fit its type."""
    quoted_name = quote_text(name)
    is_unfit = key_unfit_expression if texts == KEYS else unfit_expression
    unfit = is_unfit(f"{texts}[{quoted_name}]", kind)
    if unfit is None:
        return None
    is_own = f"NOT {_declares_other(quoted_name, kind)}"
    return f"CASE WHEN {unfit} AND {is_own} THEN {_reason(texts, quoted_name, kind)} END"


def _unfit_by_type(tables: Sequence[TableSchema], capabilities: SourceCapabilities) -> str:
    """Return the SQL for any number of columns.

    The names of all columns are one literal, those of the key and those of each type by table: Spark would
    analyse conditions of each column of hundreds of tables for a minute.
    """
    fields: dict[tuple[str, ColumnType, bool], str] = {}
    names_by_table: dict[str, dict[str, list[str]]] = {}
    for table in tables:
        names = names_by_table[table.name] = {_KEY_FIELD: [column.name for column in table.key_columns]}
        keys = ((column.name, (KEYS, column.type, False)) for column in table.key_columns)
        has_many = is_wide(table)
        values = ((column.source_name, (VALUES, column.type, has_many)) for column in table.value_columns)
        for name, kind in (*keys, *values):
            names.setdefault(fields.setdefault(kind, f"of_type_{len(fields)}"), []).append(name)
    key_names = f"{_NAMES}.{_KEY_FIELD}"
    lacks = _LACKS_KEY.format(n="n")
    lacks = f"transform(filter({key_names}, n -> NOT map_contains_key({KEYS}, n)), n -> {lacks})"
    of_key, of_values = [f"get({lacks}, 0)"], list[str]()
    for (texts, column_type, has_many), field in fields.items():
        unfit = _unfit_names(texts, column_type, f"{_NAMES}.{field}", has_many=has_many)
        if unfit is not None:
            (of_key if texts == KEYS else of_values).append(_unfit_fault(unfit, texts, column_type))
    key_fault = f"coalesce({', '.join(of_key)}, NULL)"
    if not capabilities.delivers_events:
        key_fault = _unless_recreated(key_fault, key_names)
    members = ", ".join(f"{field}: array<string>" for field in (_KEY_FIELD, *fields.values()))
    literal = f"from_json({quote_text(json.dumps(names_by_table))}, 'map<string, struct<{members}>>')"
    fault = f"coalesce({', '.join([key_fault, *of_values])}, NULL)"
    return f"get(transform(array({literal}[table_name]), {_NAMES} -> {fault}), 0)"


def _unless_recreated(fault: str, key_names: str) -> str:
    """Return the SQL of a fault of the key, which is checked again if the table has got another key."""
    declarations = f"filter(from_json(column_types, {_DECLARED}), c -> c.is_primary_key)"
    names = f"transform({declarations}, c -> c.name)"
    is_other = f"coalesce(array_size({names}) > 0 AND NOT ({_same(names, key_names)}), false)"
    lacks = "concat('the keys lack a column that the record has in the key of `', table_name, '`')"
    key_fault = f"CASE WHEN exists({names}, c -> NOT map_contains_key({KEYS}, c)) THEN {lacks} END"
    return f"CASE WHEN {fault} IS NOT NULL THEN CASE WHEN {is_other} THEN {key_fault} ELSE {fault} END END"


def _same(names: str, key_names: str) -> str:
    return f"sort_array({names}) = sort_array({key_names})"


def _unfit_names(texts: str, kind: ColumnType, names: str, *, has_many: bool) -> str | None:
    """Return the SQL of those names of columns of one type whose texts do not fit it; None if all do.

    Spark looks up a value by comparing names one by one. Where there are many, it casts all values instead,
    also those of other types, which may take a hundred times as long for each.
    """
    if has_many:
        return unfit_names_expression(texts, kind, names)
    is_unfit = key_unfit_expression if texts == KEYS else unfit_expression
    unfit = is_unfit(f"{texts}[n]", kind)
    return f"filter({names}, n -> {unfit})" if unfit is not None else None


def _unfit_fault(unfit: str, texts: str, kind: ColumnType) -> str:
    """Return the SQL of the fault of the first of some names that a record does not declare otherwise."""
    unfit_names = f"filter({unfit}, n -> NOT {_declares_other('n', kind)})"
    return f"get(transform({unfit_names}, n -> {_reason(texts, 'n', kind)}), 0)"


def _reason(texts: str, name: str, kind: ColumnType) -> str:
    about = f"'` of `', table_name, {quote_text(f'` is {kind.text}, which cannot hold: ')}"
    return f"concat('`', {name}, {about}, {shown_expression(f'{texts}[{name}]')})"


def _declares_other(name: str, kind: ColumnType) -> str:
    """Return the SQL of whether a record is from a time when a column had another type than now.

    Args:
        name: SQL of the column's name.
        kind: the current type.
    """
    element = kind.element
    has_type = f"c.type.code = {quote_text(kind.code)}"
    if element is not None:
        has_type += f" AND c.type.array_element_type.code = {quote_text(element.code)}"
    if kind.code == DECIMAL:
        has_type += f" AND c.type.type_annotation = {quote_text(kind.annotation or '')}"
    differs = f"c.name = {name} AND NOT ({has_type})"
    return f"coalesce(exists(from_json(column_types, {_DECLARED}), c -> {differs}), false)"
