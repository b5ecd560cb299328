"""Tables of a pipeline as inputs of your own Dagster assets: all inputs of a run at one cut.

@dg.asset(ins={"orders": dg.AssetIn(["shop", "orders"], input_manager_key="cut")})
def totals(orders: pl.DataFrame) -> None: ...

dg.Definitions(
    assets=[totals, dg.AssetSpec(["shop", "orders"])],
    resources={"cut": CutIOManager(defs="shop/defs.yaml")},
)

The specification names the pipeline's asset, which another code location defines.
"""

from typing import Any, Final

import dagster as dg
import pyarrow as pa

from cdc_platform.assets.layers import CUT_ASSET
from cdc_platform.errors import CutNotFound, SettingError, TableNotFound
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
_CUT_NUMBER: Final = "Cut"
"""Metadata of a materialisation of the cut."""


class CutIOManager(dg.ConfigurableIOManager):
    """Loads tables of a pipeline at the cut that the run has published, or else the newest when it began.

    The annotation of an input chooses its form: `pyarrow.Table`, which an input without one gets as well,
    `pandas.DataFrame`, `polars.DataFrame`, `duckdb.DuckDBPyRelation`, which reads what a query needs, or
    `TablesAtCut`, which has all tables of the cut. Runs are tagged with their cut, so that one that is
    executed again reads the same, unless it publishes its own.

    Args:
        defs: the YAML file that declares the pipeline.
        pipeline: its name, where the file declares several.
    """

    defs: str
    pipeline: str | None = None

    def load_input(self, context: dg.InputContext) -> object:
        """Return a table at the run's cut.

        Raises:
            CutNotFound: nothing is published yet, or the cut of the run has expired; or the run is going to
                publish one, and the asset does not wait for it.
            TableNotFound: the cut has no table of the asset's name.
            SettingError: the annotation of the input is none of those above.
        """
        published_tables = open_tables(self.defs, self.pipeline)
        tables = published_tables.at(_find_cut(context, published_tables))
        context.add_input_metadata({"Cut": str(tables.cut.cut), "Position": str(tables.position)})
        return _convert(tables, context)

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:  # noqa: ARG002  an interface
        """Raise SettingError: only the pipeline writes its tables.

        Raises:
            SettingError: always.
        """
        raise SettingError(
            "io_manager_key",
            f"must be another one for what `{context.name}` returns: `CutIOManager` only loads inputs; name "
            "it as their `input_manager_key`",
        )


def _find_cut(context: dg.InputContext, tables: PublishedTables) -> int | None:
    """Return the number of the run's cut, None without a run.

    Steps in other processes find the same one, since nothing depends on when they look: the run says when it
    began, or which cut it has published first. The tag is for a re-execution, which inherits it, and reads
    that cut unless it publishes another one.
    """
    pipeline = tables.lake.pipeline
    record = context.instance.get_run_record_by_id(context.step_context.run_id)
    if record is None:
        return None
    run, tag = record.dagster_run, f"{CUT_TAG}/{pipeline}"
    number = _cut_of_run(context, run.run_id, dg.AssetKey([tables.lake.system_namespace, CUT_ASSET]))
    if number is None and tag in run.tags:
        return int(run.tags[tag])
    if number is None:
        begun_s = record.start_time
        cuts = cuts_since_moment(tables.lake, int(begun_s * 1e6)) if begun_s is not None else ()
        number = cuts[0].cut if cuts else tables.at().cut.cut
    context.instance.add_run_tags(run.run_id, {tag: str(number)})
    return number


def _cut_of_run(context: dg.InputContext, run_id: str, key: dg.AssetKey) -> int | None:
    """Return the first cut that a run of the pipeline itself has published, None for another run.

    Raises:
        CutNotFound: it has not published the cut yet that it is going to.
    """
    kinds = {dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, dg.DagsterEventType.ASSET_MATERIALIZATION}
    entries = [
        record.event_log_entry
        for record in context.instance.get_records_for_run(run_id, of_type=kinds).records
    ]
    of_cut = [entry for entry in entries if entry.get_dagster_event().asset_key == key]
    events = [entry.asset_materialization for entry in of_cut if entry.asset_materialization is not None]
    if of_cut and not events:
        raise CutNotFound(
            f"The run has not published its cut yet, so the input `{context.name}` would be older. Let its "
            f"asset wait: add `dg.AssetKey({[*key.path]})` to its `deps`."
        )
    # 0 says that there was nothing to publish.
    return int(str(events[0].metadata[_CUT_NUMBER].value)) or None if events else None


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
            # DuckDB has every table under this name.
            return tables.duckdb(tables=[name]).table(lake_table_name(name))
    raise SettingError(context.name, f"must be a {FORMS}, not: {kind}")


def _table_name(tables: TablesAtCut, key: dg.AssetKey) -> str:
    """Return the source's name of the table that an asset stands for."""
    names = {(tables.lake.pipeline, lake_table_name(name)): name for name in tables.names}
    if tuple(key.path) not in names:
        assets = ", ".join("/".join(path) for path in names)
        raise TableNotFound(f"No table of the cut is the asset `{key.to_user_string()}`. It has: {assets}")
    return names[tables.lake.pipeline, key.path[-1]]
