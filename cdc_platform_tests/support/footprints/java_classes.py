"""Java's classes as Python's side of Spark knows them, asked for once."""

from typing import Any, Final

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession

FUNCTIONS: Final = "org.apache.spark.sql.functions"
UTILITIES: Final = "org.apache.spark.api.python.PythonUtils"


class _KnownClass(JavaClass):  # type: ignore[misc]  # py4j has no types
    """A class of Java whose static members are looked up once each: they stay what they are."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        self.__dict__[name] = member
        return member


def keep_classes(spark: SparkSession) -> None:
    """Keep what a classic session asks Java about for each expression, which is a third of its questions.

    For a short name Java looks into all jars of its class path each time.
    """
    view: Any = spark._jvm  # noqa: SLF001  what is kept is kept there
    for name in (FUNCTIONS, UTILITIES):
        java_class = _KnownClass(name, view._gateway_client)  # noqa: SLF001  nor is it anywhere else
        for key in (name, name.rpartition(".")[2]):
            setattr(view, key, java_class)
