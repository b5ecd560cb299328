"""Conversion of the change log's JSON to the typed columns of one table."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from cdc_platform.errors import ChangeUnparsed, ValueUnfit
from cdc_platform.model.base.names import FLAG_PREFIX, KEY_PREFIX, quote_spark, quote_text
from cdc_platform.model.base.timestamps import OrderPlace
from cdc_platform.model.schema.table_schema import Column as SourceColumn
from cdc_platform.model.schema.table_schema import ColumnType, TableSchema
from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.spark.frames.casts import (
    LONGEST_TEXT,
    cast_expression,
    convert_expression,
    is_wide,
    names_array,
    names_by_type,
    parsed_object,
    shown_expression,
    strict_cast_expression,
    unfit_expression,
    unfit_names_expression,
)
from cdc_platform.spark.tables.log_columns import PLAIN_WORDS, LogColumns

KIND = "__kind"
ORDINAL = "__ordinal"
KEY_TEXT = "__key_text"
ROW = "__row"
UNFIT = "cdc_platform: a value does not fit its type: "
"""Prefix of the message of a failed query; facts follow as JSON."""
UNPARSED = "cdc_platform: a text of a change is not parsed: "
"""The same if Spark cannot parse a change at all."""
COMMITTED = "__committed"
TRANSACTION = "__transaction"
IS_READ = "__is_read"
"""Whether the time of a change is that of a read, which may be long after the row changed."""
_READ_KINDS = f"'{ChangeKind.SNAPSHOT.value}', '{ChangeKind.TRUNCATE.value}'"
"""A snapshot that replaces a table truncates it first, at the time of its first read."""


def flag_of(column: str) -> str:
    """Return the name of the flag for columns that a change names."""
    return f"{FLAG_PREFIX}{column}"


def type_changes(
    log: DataFrame,
    table: TableSchema,
    *,
    has_partial_updates: bool,
    has_origin: bool = False,
    words: LogColumns = PLAIN_WORDS,
    further: Sequence[str] = (),
) -> DataFrame:
    """Return one table's changes with typed columns.

    Args:
        log: rows of the change log, of this table only.
        table: the table's columns; if it is evolving, values of a column count only within the column's life.
        has_partial_updates: whether any change may name only some columns, as all changes of an evolving
            table may.
        has_origin: whether to include the transaction and the time of changes.
        words: expressions for the order of changes.
        further: additional columns of the log to keep.

    Returns:
        `__kind`, `__ordinal`, the further columns, with origin `__committed`, `__transaction` and
        `__is_read`, the key columns, the value columns and, with partial updates, one flag `__names_COLUMN`
        for each value column. If a value does not fit its column's type, the query fails: see
        `unfit_values`.
    """
    is_read = f"change_kind IN ({_READ_KINDS})"
    origin_text = {COMMITTED: words.committed, TRANSACTION: "transaction_id", IS_READ: is_read}
    origin = origin_text if has_origin else {}
    # SQL texts: an expression built here would cost a few calls of Spark's JVM, for each of many columns.
    of_change = {KIND: words.kind, ORDINAL: words.position, **{name: quote_spark(name) for name in further}}
    of_change |= {KEY_TEXT: "keys", **origin, "new_values": "new_values"}
    if has_partial_updates:
        of_change["names"] = _names(words)
    if table.is_evolving:
        of_change |= _places(table)
    of_change |= {"k_texts": _texts("keys", table), "v_texts": _texts("new_values", table)}
    of_change |= {"k": _check_parsed("k", KEY_TEXT, table), "v": _check_parsed("v", "new_values", table)}
    values = {column.name: _value(table, column) for column in (*table.key_columns, *table.value_columns)}
    if has_partial_updates:
        values |= {flag_of(column.name): _is_named(column, words) for column in table.value_columns}
    own_columns = map(quote_spark, (KIND, ORDINAL, *further, *origin))
    return log.selectExpr(*_as_columns(of_change)).selectExpr(*own_columns, *_as_columns(values))


def with_row(changes: DataFrame, table: TableSchema, columns: Sequence[str] | None = None) -> DataFrame:
    """Return changes of one table with the column `__row`, which is equal for changes of the same row.

    The texts of their keys need not be equal: event sources write a key with the types of its file, which may
    be narrower than those of the table, or without types.

    Args:
        changes: rows of the change log, or deletion markers.
        table: the table's columns.
        columns: the SQL of the other columns of the result; None for those of `changes`.
    """
    own_columns = map(quote_spark, changes.columns) if columns is None else columns
    row = f"struct({', '.join(key_parts(table))}) AS {ROW}"
    return with_key_parts(changes, table).selectExpr(*own_columns, row)


def key_parts(table: TableSchema) -> list[str]:
    """Return the names of the key columns in `with_key_parts`."""
    return [f"{KEY_PREFIX}{number}" for number, _ in enumerate(table.key_columns)]


def with_key_parts(changes: DataFrame, table: TableSchema) -> DataFrame:
    """Return changes of one table with typed columns of their keys, and the columns that these come from."""
    parts = {KEY_TEXT: "keys", "k_texts": _texts("keys", table), "k": _check_parsed("k", KEY_TEXT, table)}
    if table.is_evolving:
        parts |= _places(table)
    values = (_value(table, column) for column in table.key_columns)
    return changes.selectExpr("*", *_as_columns(parts | dict(zip(key_parts(table), values, strict=True))))


def _as_columns(columns: Mapping[str, str]) -> Iterator[str]:
    """Yield the SQL of named columns, in which a column may refer to earlier ones: each frame costs time."""
    return (f"{sql} AS {quote_spark(name)}" for name, sql in columns.items())


def _texts(mod: str, table: TableSchema) -> str:
    """Return the SQL of the texts of a table's columns in the keys or the new values of a change.

    All are NULL if Spark cannot parse the mod: see `_check_parsed`, which every caller uses.
    """
    names = _names_in(table, is_keys=mod == "keys")
    flag_of = ", ".join(f"{quote_spark(name)}: string" for name in names)
    fields = ", ".join(f"{_field(name)}: string" for name in names)
    schema = quote_text(f"struct<{flag_of or '`_`: string'}>")
    return f"cast(from_json({mod}, {schema}) AS struct<{fields or '_: string'}>)"


def _check_parsed(part: str, mod: str, table: TableSchema) -> str:
    """Return the SQL of the result of `_texts`, a column, which fails the query if parsing failed.

    Spark's parser returns a struct of NULLs for an object that it rejects, such as one with a name that is
    too long, and a single NULL for a text that is too long. An object that has only other columns, or may
    have such a text, is parsed a second time; few changes are like that.
    """
    texts, is_keys = f"{part}_texts", part == "k"
    values = ", ".join(f"{texts}.{_field(name)}" for name in _names_in(table, is_keys=is_keys))
    if not values:
        return texts
    excerpt = f"'part', '{'keys' if is_keys else mod}', 'value', {shown_expression(mod)}"
    facts = f"'table', {quote_text(table.name)}, {excerpt}"
    failure = (
        f"raise_error(concat('{UNPARSED}', to_json(named_struct({facts}, 'key', left({KEY_TEXT}, 200)))))"
    )
    is_text = f"{mod} IS NOT NULL AND {mod} <> 'null'"
    is_doubtful = f"(coalesce({values}, NULL) IS NULL OR length({mod}) > {LONGEST_TEXT})"
    is_unparsed = f"{is_doubtful} AND {is_text} AND {parsed_object(mod)} IS NULL"
    sound_texts = _fitting(texts, mod, table) if not is_keys and _is_judged_by_row(table) else texts
    return f"if({is_unparsed}, {failure}, {sound_texts})"


def _is_judged_by_row(table: TableSchema) -> bool:
    """Return whether values are checked together: if columns have lives, not all values count."""
    return is_wide(table) and not table.is_evolving


def _fitting(texts: str, mod: str, table: TableSchema) -> str:
    """Return the SQL of the result of `_texts`, which fails the query if a value does not fit its type.

    Only a failure parses the mod again, for the column's name: parsing takes longer than all casts.
    """
    sound_texts, values = texts, parsed_object(mod)
    for kind, names in names_by_type(table).items():
        is_unfit = unfit_expression("text", kind)
        unfit = unfit_names_expression(values, kind, names_array(names))
        if is_unfit is not None:
            failure = _failure(table, f"get({unfit}, 0)", kind, f"{values}[get({unfit}, 0)]")
            fields = ", ".join(f"{texts}.{_field(name)}" for name in names)
            is_any_unfit = f"exists(array({fields}), text -> {is_unfit})"
            sound_texts = f"if({is_any_unfit}, raise_error({failure}), {sound_texts})"
    return sound_texts


def _names_in(table: TableSchema, *, is_keys: bool) -> Collection[str]:
    # Several versions of a column have one name in the records.
    return dict.fromkeys(column.source_name for column in table.columns if column.is_in_keys == is_keys)


def _field(name: str) -> str:
    """Return a name that stays distinct from others although Spark ignores case."""
    return f"_{name.encode().hex()}"


def _names(words: LogColumns) -> str:
    """Return the SQL of the columns that a change names, or lacks; NULL if it names all of them."""
    return f"CASE WHEN NOT is_whole_row THEN coalesce({words.names}, cast(array() AS array<string>)) END"


def _is_named(column: SourceColumn, words: LogColumns) -> str:
    is_listed = f"array_contains(names, {quote_text(column.source_name)})"
    if words.lists_missing:
        # Like a whole row, a change sets columns that it does not know to NULL.
        return f"(names IS NULL OR NOT {is_listed})"
    names = f"(names IS NULL OR {is_listed})"
    if column.life is None:
        return names
    # A change that begins or ends a row sets columns that it does not know to NULL; others keep their values.
    is_row_event = f"{KIND} <> '{ChangeKind.UPDATE.value}'"
    return f"({is_row_event} OR {names} AND {_within(column, with_former=True)})"


def _cast(table: TableSchema, column: SourceColumn) -> str:
    text = f"{'k' if column.is_in_keys else 'v'}.{_field(column.source_name)}"
    if _is_judged_by_row(table) and not column.is_primary_key:
        return cast_expression(text, column.type)
    failure = _failure(table, quote_text(column.source_name), column.type, text)
    return strict_cast_expression(text, column.type, failure)


def _failure(table: TableSchema, column: str, kind: ColumnType, text: str) -> str:
    """Return the SQL of a query's error message for a text that does not fit the type of a column."""
    context = {
        "table": quote_text(table.name),
        "column": column,
        "type_name": quote_text(kind.text),
        "value": shown_expression(text),
        "key": KEY_TEXT,
    }
    facts = ", ".join(f"'{name}', {sql}" for name, sql in context.items())
    return f"concat('{UNFIT}', to_json(named_struct({facts})))"


def _within(column: SourceColumn, *, with_former: bool) -> str:
    """Return the SQL for whether a change lies in the life of a column, or of a former version."""
    bounds = ["true"]
    first = column
    while with_former and first.life is not None and first.life.before is not None:
        first = first.life.before
    if first.life is not None and first.life.since_inclusive is not None:
        bounds.append(f"NOT {_is_before(first.life.since_inclusive)}")
    if column.life is not None and column.life.until_exclusive is not None:
        bounds.append(_is_before(column.life.until_exclusive))
    return f"({' AND '.join(bounds)})"


def _is_before(place: OrderPlace) -> str:
    micros, order = place
    return f"(committed < {micros} OR committed = {micros} AND order_at_commit < {quote_text(order)})"


def _places(table: TableSchema) -> dict[str, str]:
    """Return the SQL of the columns that lives refer to: events of a cycle share their commit timestamp."""
    lives = (life for column in table.columns for life in column.lives)
    bounds = (bound or (0, "") for life in lives for bound in (life.since_inclusive, life.until_exclusive))
    order = "coalesce(ordering_key, '')" if any(order for _, order in bounds) else "''"
    return {"committed": "unix_micros(commit_timestamp)", "order_at_commit": order}


def _value(table: TableSchema, column: SourceColumn) -> str:
    current_value = _cast(table, column)
    if column.life is None:
        return current_value
    cases = f"WHEN {_within(column, with_former=False)} THEN {current_value}"
    former = column.life.before
    if former is not None and column.life.since_inclusive is not None:
        value, is_widened = _value(table, former), column.life.is_widened
        conversion = convert_expression(value, former.type, column.type, is_widened=is_widened)
        cases += f" WHEN {_is_before(column.life.since_inclusive)} THEN {conversion}"
    return f"CASE {cases} END"


@contextmanager
def unfit_values() -> Iterator[None]:
    """Translate the errors of queries for values that do not fit their columns' types.

    Raises:
        ValueUnfit: a value does not fit; the error names table, key and column.
        ChangeUnparsed: the keys or the values of a change cannot be parsed.
    """
    try:
        yield
    except PySparkException as error:
        for begin, kind in ((UNFIT, ValueUnfit), (UNPARSED, ChangeUnparsed)):
            _, marker, facts = str(error).partition(begin + "{")
            if marker:
                raise kind(**json.JSONDecoder().raw_decode("{" + facts)[0]) from error
        # Spark's other errors may contain the expression that would raise this message.
        raise
