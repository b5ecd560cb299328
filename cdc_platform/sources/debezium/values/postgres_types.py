"""Names of PostgreSQL's types, in the form that the tables of encodings and shapes use."""

import re
from dataclasses import dataclass, replace
from typing import Final

from cdc_platform.model.schema.table_schema import MAX_DIMENSIONS

TEXT: Final = "text"
STRING_ARRAY: Final = "string[]"
"""An array of texts with an unknown PostgreSQL type."""

_ALIASES: Final = {
    "bool": "boolean",
    "int2": "smallint",
    "smallserial": "smallint",
    "int": "integer",
    "int4": "integer",
    "serial": "integer",
    "int8": "bigint",
    "bigserial": "bigint",
    "float4": "real",
    "float8": "double precision",
    "float": "double precision",
    "decimal": "numeric",
    "dec": "numeric",
    "character varying": "varchar",
    "character": "bpchar",
    "char": "bpchar",
    "bit varying": "varbit",
    "timestamp with time zone": "timestamptz",
    "timestamp without time zone": "timestamp",
    "time with time zone": "timetz",
    "time without time zone": "time",
}
_SIZES: Final = re.compile(r"\(\s*(-?\d+)\s*(?:,\s*(-?\d+)\s*)?\)")
_MAX_CHARACTERS: Final = 1_000
"""Maximum number of characters of a type with its schema; PostgreSQL allows 63 per name."""
_AS_TEXT: Final = " as text"
_SPACES: Final = re.compile(r"\s+")
_ARRAY: Final = re.compile(r"(.*?)\s*(?:\[\d*\])+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PostgresType:
    """A type by its short name, such as `varchar` or `integer[]`, and the sizes in its parentheses.

    ``is_kept_as_text`` means that a setting requires the values as texts, such as infinite dates.
    """

    name: str
    sizes: tuple[int, ...] = ()
    element: "PostgresType | None" = None
    is_kept_as_text: bool = False

    @classmethod
    def parse(cls, text: str, sizes: tuple[int, ...] = ()) -> "PostgresType":
        """Return the type of a text such as `numeric(10,2)`, `timestamp(3)`, `_int4` or `date as text`.

        An unknown type keeps its name: its values are texts.

        Args:
            text: the type as PostgreSQL or Debezium writes it.
            sizes: precision and scale, or length, if the text lacks them.
        """
        if len(text) > _MAX_CHARACTERS:
            return cls(text)
        plain = _SPACES.sub(" ", text.strip().lower())
        if plain.endswith(_AS_TEXT):
            return cls.parse(plain.removesuffix(_AS_TEXT), sizes).kept_as_text()
        if len(plain) - len(plain.lstrip("_")) > MAX_DIMENSIONS:
            return cls(plain)
        array = _ARRAY.fullmatch(plain)
        inner = array.group(1) if array else plain[1:] if plain.startswith("_") else None
        return cls._scalar(plain, sizes) if inner is None else _array_of(cls.parse(inner, sizes))

    @classmethod
    def propagated(cls, text: str, sizes: tuple[int, ...] = (), *, is_array: bool) -> "PostgresType":
        """Return the type of a name in a schema block, such as `INT4`, `_INT4` or `"EXTENSIONS"."CITEXT"`.

        Args:
            text: the type as the connector propagates it.
            sizes: precision and scale, or length.
            is_array: whether the column is an array; a scalar type's name may begin with an underscore, too.
        """
        if len(text) > _MAX_CHARACTERS:
            return cls(text)
        bare = _bare(text.lower())
        if is_array and bare.startswith("_"):
            return _array_of(cls._scalar(bare[1:], sizes))
        return cls._scalar(bare, sizes)

    @classmethod
    def _scalar(cls, plain: str, sizes: tuple[int, ...]) -> "PostgresType":
        match = _SIZES.search(plain)
        if match is not None:
            sizes = tuple(int(size) for size in match.groups() if size is not None)
            plain = _SPACES.sub(" ", _SIZES.sub("", plain)).strip()
        name = _bare(plain)
        return cls(_ALIASES.get(name, name), sizes)

    def kept_as_text(self) -> "PostgresType":
        """Return the type kept as text; in an array, this applies to each element."""
        if self.element is None:
            return replace(self, is_kept_as_text=True)
        return replace(self, element=self.element.kept_as_text())


def _bare(name: str) -> str:
    """Return a name without its schema."""
    return name.rpartition(".")[2].strip('"') if "." in name else name


def _array_of(element: PostgresType) -> PostgresType:
    return PostgresType(f"{element.name}[]", element=element)
