"""Tables with a column of each type: values out of line, and values whose encoding is easily lost."""

from collections.abc import Mapping
from typing import Final

SHAPES: Final[Mapping[str, str]] = {
    # type: an expression for a value that is stored out of line; {n} distinguishes rows
    "text": "repeat('text {n} ', 12)",
    "varchar": "repeat('varchar {n} ', 10)",
    "char(90)": "'bpchar {n}'",
    "citext": "repeat('CiText {n} ', 10)",
    "xml": "('<a>' || repeat('xml {n} ', 12) || '</a>')::xml",
    "json": "('{\"a\": \"' || repeat('json {n} ', 12) || '\"}')::json",
    "jsonb": "('{\"b\": \"' || repeat('jsonb {n} ', 12) || '\"}')::jsonb",
    "ltree": "('a' || repeat('.n{n}', 30))::ltree",
    "tsvector": "(SELECT array_to_tsvector(array_agg('w{n}' || i)) FROM generate_series(1, 20) i)",
    "words": "repeat('domain {n} ', 12)",
    "bytea": "decode(repeat('0{n}ff', 40), 'hex')",
    "text[]": "array_fill('text {n}'::text, ARRAY[9])",
    "varchar[]": "array_fill('varchar {n}'::varchar, ARRAY[9])",
    "bpchar[]": "array_fill('bpchar {n}'::bpchar, ARRAY[9])",
    "json[]": "array_fill('{{\"a\": {n}}}'::json, ARRAY[9])",
    "jsonb[]": "array_fill('{{\"b\": {n}}}'::jsonb, ARRAY[9])",
    "bytea[]": "array_fill('\\x0{n}ff'::bytea, ARRAY[9])",
    "int4[]": "array_fill({n}, ARRAY[30])",
    "int8[]": "array_fill({n}::int8, ARRAY[20])",
    "date[]": "array_fill('2024-02-0{n}'::date, ARRAY[30])",
    "uuid[]": "array_fill('00000000-0000-4000-8000-00000000000{n}'::uuid, ARRAY[9])",
    "hstore": "hstore('key {n}', repeat('hstore ', 12))",
    "int2[]": "array_fill({n}::int2, ARRAY[60])",
    "float4[]": "array_fill({n}.5::float4, ARRAY[30])",
    "float8[]": "array_fill({n}.25::float8, ARRAY[20])",
    "numeric[]": "array_fill({n}.125::numeric, ARRAY[20])",
    "bool[]": "array_fill(true, ARRAY[90])",
    "time[]": "array_fill('0{n}:02:03'::time, ARRAY[20])",
    "timestamp[]": "array_fill('2024-02-0{n} 01:02:03'::timestamp, ARRAY[20])",
    "timestamptz[]": "array_fill('2024-02-0{n} 01:02:03+00'::timestamptz, ARRAY[20])",
    "inet[]": "array_fill('10.0.0.{n}'::inet, ARRAY[20])",
    "mood[]": "array_fill('glad'::mood, ARRAY[40])",
    "int4range[]": "array_fill('[{n},9)'::int4range, ARRAY[9])",
    "hstore[]": "array_fill(hstore('k', '{n}'), ARRAY[9])",
    "numeric": "(repeat('{n}23456789', 40) || '.5')::numeric",
    "varbit": "repeat('1', 90{n})::varbit",
    "bit(904)": "repeat('01', 452)::bit(904)",
    "polygon": "polygon(24, circle '((0,0),{n})')",
    "path": "path(polygon(24, circle '((0,0),{n})'))",
    "pair": "ROW({n}, repeat('pair ', 20))::pair",
    "int4multirange": "(SELECT range_agg(int4range(i * 9, i * 9 + {n})) FROM generate_series(1, 20) i)",
    "point[]": "array_fill(point({n}, 2), ARRAY[9])",
    "text[][]": "array_fill('text {n}'::text, ARRAY[3, 3])",
}


def column_name(type_name: str) -> str:
    """Return the name of the column of a type."""
    plain = type_name.replace("[]", "_array")
    return "c_" + "".join(letter if letter.isalnum() else "_" for letter in plain).strip("_")


SHAPES_COLUMNS: Final = {column_name(type_name): type_name for type_name in SHAPES}

TYPE_SETUP: Final = (
    "CREATE EXTENSION citext",
    "CREATE EXTENSION hstore",
    "CREATE EXTENSION ltree",
    "CREATE TYPE mood AS ENUM ('sad', 'glad')",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE DOMAIN words AS text",
)


def shapes_setup(table: str = "shapes") -> tuple[str, ...]:
    """Return the statements that make the table whose columns are all stored out of line."""
    columns = ", ".join(f"{name} {type_name}" for name, type_name in SHAPES_COLUMNS.items())
    external = ", ".join(f"ALTER {name} SET STORAGE EXTERNAL" for name in SHAPES_COLUMNS)
    return (
        # The small target makes even short values leave a row that is long as a whole.
        f"CREATE TABLE {table} (id int PRIMARY KEY, touched int, {columns}) WITH (toast_tuple_target = 128)",
        f"ALTER TABLE {table} {external}",
    )


def shapes_row(number: int, table: str = "shapes") -> str:
    """Return the statement that inserts a row, numbered 1 to 9."""
    values = ", ".join(
        value.replace("{n}", str(number)).replace("{{", "{").replace("}}", "}") for value in SHAPES.values()
    )
    return f"INSERT INTO {table} SELECT {number}, 0, {values}"


TYPES: Final[Mapping[str, tuple[str | None, ...]]] = {
    # type: values of a usual row, of an extreme row, and of a third one; a row of nulls comes last
    "bool": ("true", "false", "true"),
    "int2": ("7", "-32768", "32767"),
    "int4": ("7", "-2147483648", "2147483647"),
    "int8": ("7", "-9223372036854775808", "9223372036854775807"),
    "float4": ("1.5", "NaN", "-Infinity"),
    "float8": ("1.25", "-0", "Infinity"),
    "numeric(10,2)": ("1.50", "-0.01", "99999999.99"),
    "numeric(50,10)": ("1.5", "-1234567890123456789012345678901234567890.0123456789", "0"),
    "numeric": ("1.10", "NaN", "123456789012345678901234567890.123456789"),
    "money": ("1.50", "-92233720368547758.08", "0"),
    "text": ("text", "", 'ü \U0001f600 " \\ \n'),
    "varchar(9)": ("varchar", "", "__debezium"),
    "char(6)": ("ab", "", "abcdef"),
    "bytea": ("\\xff00", "\\x", "\\x5f5f"),
    "bit(1)": ("1", "0", "1"),
    "bit(11)": ("10000000001", "00000000000", "11111111111"),
    "varbit(20)": ("101", "", "11111111111111111111"),
    "date": ("2024-02-29", "1582-10-10", "infinity"),
    "time": ("12:34:56.789012", "00:00:00", "24:00:00"),
    "time(3)": ("12:34:56.789", "00:00:00", "23:59:59.999"),
    "timetz": ("12:34:56.789+05:30", "00:00:00+00", "23:59:59.999999-08"),
    "timestamp": ("2024-02-29 12:34:56.789012", "0001-01-01 00:00:00", "infinity"),
    "timestamp(3)": ("2024-02-29 12:34:56.789", "1969-12-31 23:59:59.999", "9999-12-31 23:59:59.999"),
    "timestamptz": ("2024-02-29 12:34:56.789012+05:30", "0001-01-01 00:00:00+00", "infinity"),
    "timestamptz(0)": ("2024-02-29 12:34:56+00", "1969-12-31 23:59:59+00", "9999-12-31 23:59:59+00"),
    "interval": ("1 year 2 mons 3 days 04:05:06.789", "-1 mons", "0"),
    "json": ('{"a": 1.10, "a": 2}', "null", "[]"),
    "jsonb": ('{"a": 1.10, "a": 2}', "null", "[]"),
    "uuid": ("00000000-0000-4000-8000-000000000001", "ffffffff-ffff-ffff-ffff-ffffffffffff", None),
    "xml": ("<a/>", "<b>c</b>", "<d/>"),
    "ltree": ("a.b", "a", "b.c.d"),
    "tsvector": ("'a':1", "", "'b':2"),
    "mood": ("sad", "glad", "sad"),
    "words": ("domain", "", "words"),
    "hstore": ("a=>1, b=>NULL", "", 'c=>"d"'),
    "inet": ("10.0.0.1", "::1", "10.0.0.0/8"),
    "cidr": ("10.0.0.0/8", "::/0", "10.0.0.1/32"),
    "macaddr": ("08:00:2b:01:02:03", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"),
    "int4range": ("[1,5)", "empty", "(,9)"),
    "numrange": ("[1.5,2.5]", "empty", "(,)"),
    "tstzrange": ("[2024-02-29 00:00:00+00,)", "empty", "(,)"),
    "citext": ("CiText", "", "x"),
    "point": ("(1,2)", "(-0.5,1e300)", "(0,0)"),
    "box": ("(2,2),(1,1)", "(0,0),(0,0)", "(9,9),(8,8)"),
    "int4[]": ("{1,NULL,3}", "{}", "{{1,2},{3,4}}"),
    "int8[]": ("{1,NULL,9223372036854775807}", "{}", "{0}"),
    "text[]": ('{a,NULL,"NULL","b,c"}', "{}", '{""}'),
    "numeric(10,2)[]": ("{1.50,NULL}", "{}", "{-0.01}"),
    "numeric[]": ("{1.10,NULL}", "{}", "{NaN}"),
    "float8[]": ("{1.5,NULL}", "{NaN,Infinity}", "{}"),
    "bool[]": ("{t,f,NULL}", "{}", "{t}"),
    "bytea[]": ('{"\\\\xff00",NULL}', "{}", '{"\\\\x"}'),
    "date[]": ("{2024-02-29,NULL}", "{}", "{1970-01-01}"),
    "timestamp[]": ('{"2024-02-29 12:34:56.789012",NULL}', "{}", '{"1970-01-01 00:00:00"}'),
    "timestamptz[]": ('{"2024-02-29 12:34:56.789012+00",NULL}', "{}", '{"1970-01-01 00:00:00+00"}'),
    "uuid[]": ("{00000000-0000-4000-8000-000000000001,NULL}", "{}", "{}"),
    "mood[]": ("{sad,NULL}", "{}", "{glad}"),
    "json[]": ('{"{\\"a\\": 1}",NULL}', "{}", '{"null"}'),
}
TYPES_COLUMNS: Final = {column_name(type_name): type_name for type_name in TYPES}
TYPES_ROWS: Final = 4


def types_setup() -> tuple[str, ...]:
    """Return the statements that make the table with a column of each type, and some that are special."""
    columns = ", ".join(f"{name} {type_name}" for name, type_name in TYPES_COLUMNS.items())
    special = (
        "defaulted int DEFAULT 5, needed text NOT NULL DEFAULT 'needed', "
        "doubled int GENERATED ALWAYS AS (id * 2) STORED"
    )
    return (f"CREATE TABLE types (id int PRIMARY KEY, {columns}, {special})",)


def types_row(number: int) -> tuple[str, tuple[str | None, ...]]:
    """Return the statement and the values that insert a row, numbered 1 to 4; the last one has nulls."""
    values = [texts[number - 1] if number <= len(texts) else None for texts in TYPES.values()]
    marks = ", ".join(f"%s::{type_name}" for type_name in TYPES)
    return f"INSERT INTO types VALUES ({number}, {marks}, NULL, DEFAULT)", tuple(values)
