"""Tables of a pipeline as inputs of your own Dagster assets: all inputs of a run at one cut.

@dg.asset(ins={"orders": dg.AssetIn(["shop", "orders"], input_manager_key="cut")})
def totals(orders: pl.DataFrame) -> None: ...

dg.Definitions(assets=[totals], resources={"cut": CutIOManager(defs="shop/defs.yaml")})
"""

from typing import Any, Final

import dagster as dg
import pyarrow as pa
from dagster._core.events import EngineEventData

from cdc_platform.claims import PIPELINE_TAG
from cdc_platform.errors import SettingError, TableNotFound
from cdc_platform.lake.state.cuts import cuts_since_moment
from cdc_platform.model.base.libraries import optional_library
from cdc_platform.model.base.names import lake_table_name
from cdc_platform.read import PublishedTables, TablesAtCut, open_tables

CUT_TAG: Final = "cdc_platform/cut"
"""Tag of a run, followed by the pipeline: the cut at which the run reads its tables."""
FORMS: Final = (
    "`pyarrow.Table`, `pandas.DataFrame`, `polars.DataFrame`, `duckdb.DuckDBPyRelation` or `TablesAtCut`"
)
"""Annotations of inputs."""


class CutIOManager(dg.ConfigurableIOManager):
    """Loads tables of a pipeline at the cut that was the newest when the run began.

    The annotation of an input chooses its form: `pyarrow.Table`, which an input without one gets as well,
    `pandas.DataFrame`, `polars.DataFrame`, `duckdb.DuckDBPyRelation`, which reads what a query needs, or
    `TablesAtCut`, which has all tables of the cut. Runs are tagged with their cut, so that one that is
    executed again reads the same.

    Args:
        defs: the YAML file that declares the pipeline.
        pipeline: its name, where the file declares several.
    """

    defs: str
    pipeline: str | None = None

    def load_input(self, context: dg.InputContext) -> object:
        """Return a table at the run's cut.

        Raises:
            CutNotFound: nothing is published yet, or the cut of the run has expired.
            TableNotFound: the cut has no table of the asset's name.
            SettingError: the annotation of the input is none of those above.
        """
        published = open_tables(self.defs, self.pipeline)
        tables = published.at(_find_cut(context, published))
        context.add_input_metadata({"Cut": str(tables.cut.cut), "Position": str(tables.position)})
        return _convert(tables, context)

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:  # noqa: ARG002  an interface
        """Refuse: tables of a pipeline are written by the pipeline.

        Raises:
            SettingError: always.
        """
        raise SettingError(
            "io_manager_key",
            f"must be another one for what `{context.name}` returns: `CutIOManager` only loads inputs; name "
            "it as their `input_manager_key`",
        )


def _find_cut(context: dg.InputContext, published: PublishedTables) -> int | None:
    """Return the number of the run's cut, None without a run; the first input chooses it for all."""
    pipeline = published.lake.pipeline
    record = context.instance.get_run_record_by_id(context.step_context.run_id)
    if record is None:
        return None
    tag, tags = f"{CUT_TAG}/{pipeline}", record.dagster_run.tags
    if tag in tags:
        return int(tags[tag])
    # A run that has published a cut itself reads that one.
    is_own = tags.get(PIPELINE_TAG) == pipeline
    begun_s = record.start_time if record.start_time is not None and not is_own else 0.0
    cuts = cuts_since_moment(published.lake, int(begun_s * 1e6)) if begun_s else ()
    choice = cuts[0].cut if cuts else published.at().cut.cut
    number = agree(context.instance, record.dagster_run, tag, choice)
    context.instance.add_run_tags(record.dagster_run.run_id, {tag: str(number)})
    return number


def agree(instance: dg.DagsterInstance, run: dg.DagsterRun, tag: str, choice: int) -> int:
    """Return the cut that was chosen first in a run, by this step or by another one.

    Steps that begin in other processes at the same time find no tag, and different cuts if one is published
    in between. A tag keeps its last writer's choice, so each step logs its own, and the first one counts.
    """
    data = EngineEventData(metadata={tag: dg.MetadataValue.text(str(choice))})
    instance.report_engine_event(f"Reads {tag.removeprefix(CUT_TAG)[1:]} at cut {choice}.", run, data)
    logged = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT).records
    events = (record.event_log_entry.get_dagster_event().engine_event_data.metadata for record in logged)
    return next(int(str(event[tag].value)) for event in events if tag in event)


def _convert(tables: TablesAtCut, context: dg.InputContext) -> object:
    kind = context.dagster_type.typing_type
    if kind is TablesAtCut:
        return tables
    name = _table_name(tables, context.asset_key)
    if kind in (pa.Table, Any):
        return tables.arrow(name)
    # By name, since these libraries may be absent, and take long to import.
    match getattr(kind, "__module__", "").partition(".")[0], getattr(kind, "__name__", ""):
        case "pandas", "DataFrame":
            return tables.arrow(name).to_pandas()
        case "polars", "DataFrame":
            return tables.polars(name)
        case "duckdb" | "_duckdb", "DuckDBPyRelation":
            optional_library("duckdb", "duckdb")
            return tables.duckdb(tables=[name]).table(name)
    raise SettingError(context.name, f"must be a {FORMS}, not: {kind}")


def _table_name(tables: TablesAtCut, key: dg.AssetKey) -> str:
    """Return the source's name of the table that an asset stands for."""
    names = {(tables.lake.pipeline, lake_table_name(name)): name for name in tables.names}
    if tuple(key.path) not in names:
        known = ", ".join("/".join(path) for path in names)
        raise TableNotFound(f"No table of the cut is the asset `{key.to_user_string()}`. It has: {known}")
    return names[tables.lake.pipeline, key.path[-1]]
