"""Faults that keep a change out of the log, detected without other changes."""

from collections.abc import Iterator, Sequence
from functools import partial

from cdc_platform.model.base.names import quote_text
from cdc_platform.model.schema.table_schema import DECIMAL, ColumnType, TableSchema
from cdc_platform.model.schema.table_schema import Column as SourceColumn
from cdc_platform.model.stream.source_capabilities import CHANGE_STREAM, SourceCapabilities
from cdc_platform.spark.frames.casts import (
    LONGEST_TEXT,
    is_wide,
    key_unfit_expression,
    names_by_type,
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
_HAS_ROW = "mod_type <> 'TRUNCATE'"
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
    by_table = [(table.name, _table_faults(table, capabilities)) for table in tables]
    branches = " ".join(f"WHEN {quote_text(name)} THEN {faults}" for name, faults in by_table if faults)
    unfit = f"WHEN {_HAS_ROW} THEN CASE table_name {branches} END" if branches else ""
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


def _table_faults(table: TableSchema, capabilities: SourceCapabilities) -> str | None:
    """Return the SQL of the first fault of a change of the table; None if it can have none."""
    of_key = [_key_fault(table, column) for column in table.key_columns]
    if of_key and not capabilities.delivers_events:
        of_key = [_unless_recreated(table, f"coalesce({', '.join([*of_key, 'NULL'])})")]
    of_values = (
        _faults_by_type(table) if is_wide(table) else map(partial(_value_fault, table), table.value_columns)
    )
    faults = [*of_key, *of_values]
    possible_faults = [fault for fault in faults if fault is not None]
    return f"coalesce({', '.join([*possible_faults, 'NULL'])})" if possible_faults else None


def _unless_recreated(table: TableSchema, fault: str) -> str:
    """Return the SQL of a fault of the key, which is checked again if the table has got another key."""
    declarations = f"filter(from_json(column_types, {_DECLARED}), c -> c.is_primary_key)"
    names = f"transform({declarations}, c -> c.name)"
    key_names = ", ".join(quote_text(column.name) for column in table.key_columns)
    is_other = f"coalesce(array_size({names}) > 0 AND NOT ({_same(names, key_names)}), false)"
    lacks = quote_text(f"the keys lack a column that the record has in the key of `{table.name}`")
    key_fault = f"CASE WHEN exists({names}, c -> NOT map_contains_key({KEYS}, c)) THEN {lacks} END"
    return f"CASE WHEN {fault} IS NOT NULL THEN CASE WHEN {is_other} THEN {key_fault} ELSE {fault} END END"


def _same(names: str, key_names: str) -> str:
    return f"sort_array({names}) = sort_array(array({key_names}))"


def _key_fault(table: TableSchema, column: SourceColumn) -> str:
    name, text = quote_text(column.name), f"{KEYS}[{quote_text(column.name)}]"
    lacks = quote_text(f"the keys lack `{column.name}` of `{table.name}`")
    unfit = key_unfit_expression(text, column.type)
    fault_text = _fault_text(table, column, text)
    branch = (
        f" WHEN {unfit} AND NOT {_declares_other(quote_text(column.name), column.type)} THEN {fault_text}"
        if unfit
        else ""
    )
    return f"CASE WHEN NOT map_contains_key({KEYS}, {name}) THEN {lacks}{branch} END"


def _value_fault(table: TableSchema, column: SourceColumn) -> str | None:
    text = f"{VALUES}[{quote_text(column.name)}]"
    unfit = unfit_expression(text, column.type)
    is_own = f"NOT {_declares_other(quote_text(column.name), column.type)}"
    return f"CASE WHEN {unfit} AND {is_own} THEN {_fault_text(table, column, text)} END" if unfit else None


def _faults_by_type(table: TableSchema) -> Iterator[str | None]:
    """Yield the SQL of the first fault among the values of each type."""
    for kind, names in names_by_type(table).items():
        unfit = unfit_names_expression(VALUES, kind, names)
        if unfit is not None:
            unfit_names = f"filter({unfit}, n -> NOT {_declares_other('n', kind)})"
            about = f"'` of `', {quote_text(f'{table.name}` is {kind.text}, which cannot hold: ')}"
            value = shown_expression(f"{VALUES}[n]")
            yield f"get(transform({unfit_names}, n -> concat('`', n, {about}, {value})), 0)"


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


def _fault_text(table: TableSchema, column: SourceColumn, text: str) -> str:
    about = quote_text(f"`{column.name}` of `{table.name}` is {column.type.text}, which cannot hold: ")
    return f"concat({about}, {shown_expression(text)})"
