from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_platform.model.base.names import quote_spark


def col(name: str) -> Column:
    """Return the column with exactly this name, in which a dot selects no field."""
    return F.col(quote_spark(name))
