"""Bytes that Spark's tasks send to the driver."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DriverBytes:
    """Bytes that tasks have sent to the driver."""

    def __init__(self, spark: "SparkSession") -> None:
        context: Any = spark.sparkContext
        self._context = context._jsc.sc()  # noqa: SLF001  only Spark's JVM counts bytes of results
        self._no_quantiles = context._gateway.new_array(context._jvm.double, 0)  # noqa: SLF001  as above
        self.counted = 0

    @contextmanager
    def count(self) -> Iterator[None]:
        """Count what the stages send that begin within the context."""
        before = self._sizes()
        yield
        self.counted = sum(size for stage, size in self._sizes().items() if stage not in before)

    def _sizes(self) -> dict[tuple[int, int], int]:
        self._context.listenerBus().waitUntilEmpty()
        stages = self._context.statusStore().stageList(None, False, False, self._no_quantiles, None)
        stages_in_order = (stages.apply(place) for place in range(stages.size()))
        return {(stage.stageId(), stage.attemptId()): stage.resultSize() for stage in stages_in_order}
