"""The command `cdc-platform simulate`."""

import json
from collections.abc import Callable
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import click

from cdc_platform.commands.options import FiniteRange, examples
from cdc_platform.errors import SettingError
from cdc_platform.model.base.declared_settings import micros_of_setting
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.printing.lines import print_line
from cdc_platform.printing.progress_display import at_rest
from cdc_platform.printing.tables import make_grid, print_rendered
from cdc_platform.private_files import write_whole
from cdc_platform.simulator.wire.simulator_settings import (
    PASSING_FAULTS,
    Dialect,
    Fault,
    PartitionMode,
    RecordSequences,
    RootParents,
    SimulatorSettings,
)
from cdc_platform.stopping import interruption

ALL_FAULTS: Final = "all"
_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_HIGHEST_RATE: Final = 100_000
_CAPTURES: Final = [item for item in ValueCaptureType if item is not ValueCaptureType.UNKNOWN]
_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class _Words(click.Choice[str]):
    """Members of an enum by their values, as in all other output; click would use their names."""

    def __init__(self, *members: StrEnum) -> None:
        super().__init__([member.value for member in members], case_sensitive=False)
        self._kind = type(members[0])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> StrEnum:
        """Return the member with a value, in any case."""
        return self._kind(super().convert(value, param, ctx))


def _setting(option: str, name: str, kind: "click.ParamType[Any]", text: str) -> _Decorator:
    """Return an option for a setting of the simulator, with the setting's default."""
    default = getattr(SimulatorSettings, name)
    default = default.value.lower() if isinstance(default, StrEnum) else default
    return click.option(option, name, type=kind, default=default, show_default=True, help=text)


@click.command(
    epilog=examples(
        "simulate",
        "simulate --dialect postgresql --partitions 200 --rate 1000",
        "simulate --seed 7 --faults all --history truth.jsonl",
        "simulate --state bank.json --faults unavailable,stalled --stall 60",
    )
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on loopback; by default any free port."
)
@_setting("--seed", "seed", click.INT, "Seed of the history and the faults.")
@_setting("--dialect", "dialect", _Words(*Dialect), "SQL dialect of the database.")
@_setting("--partitions", "partitions", click.IntRange(min=1), "Approximate number of live partitions.")
@_setting(
    "--partition-life",
    "partition_life_s",
    FiniteRange(min=0.1),
    "Minimum lifetime of a partition, in seconds.",
)
@_setting("--rate", "rate", FiniteRange(min=0, min_open=True, max=_HIGHEST_RATE), "Transactions a second.")
@_setting("--accounts", "accounts", click.INT, "Accounts at the beginning.")
@_setting(
    "--preloaded",
    "preloaded_transfers",
    click.IntRange(min=0),
    "Transfers in the tables before the change stream is created.",
)
@_setting("--capture", "value_capture_type", _Words(*_CAPTURES), "What the change stream captures.")
@click.option("--all-types", is_flag=True, help="Add a table with a column of every type.")
@_setting(
    "--schema-changes-every",
    "schema_change_every_s",
    FiniteRange(min=0, min_open=True),
    "Seconds from one schema change to the next; by default there are none.",
)
@click.option("--origin", help="When the history begins, such as 2026-01-31T08:00:00Z; by default now.")
@_setting("--age", "history_s", FiniteRange(min=0), "Seconds of history at the start.")
@click.option(
    "--faults",
    default="",
    help=f"Faults of queries, separated by commas: {', '.join(Fault)}; "
    f"`{ALL_FAULTS}` are those from which a reader can recover.",
)
@_setting("--fault-probability", "fault_probability", FiniteRange(0, 1), "Probability of a fault in a query.")
@_setting("--stall", "stall_s", FiniteRange(min=0), "Seconds of silence of a stalled query.")
@_setting(
    "--partition-mode",
    "partition_mode",
    _Words(*PartitionMode),
    "Whether partitions end and have children, or continue while keys move between them.",
)
@click.option(
    "--placement",
    "placements",
    multiple=True,
    help="Placement with its own read function, in addition to the default one; may be repeated.",
)
@_setting(
    "--root-parents",
    "root_parents",
    _Words(*RootParents),
    "parent_partition_tokens of the first partitions: an empty list, or a list with a NULL.",
)
@_setting(
    "--record-sequences",
    "record_sequences",
    _Words(*RecordSequences),
    "record_sequence: decimal numbers, or in a quarter of the transactions pairs of hexadecimal ones.",
)
@click.option("--history", type=_FILE, help="Write the true history here, one transaction a line, as JSON.")
@click.option("--state", type=_FILE, help="Resume the history of this file; it is created if missing.")
@click.option("--names", type=_FILE, help="Write the names to connect with here, as JSON.")
def simulate(**options: Any) -> None:
    """Serve the change stream of a simulated Spanner.

    It serves Spanner's gRPC API on loopback: set SPANNER_EMULATOR_HOST to the address, and read it like
    Spanner. Its bank books transfers, and the sum of all balances never changes; partitions split, merge and
    move all the time. It runs until interrupted.
    """
    # Imported here: `--help` needs no gRPC.
    from cdc_platform.simulator.server import Simulator

    settings = to_settings(options)
    is_over = interruption()
    files = {"state": options["state"], "history_file": options["history"]}
    with Simulator(settings, port=options["port"], **files) as simulator:
        names = simulator.names()
        # Before anything is printed: a program that waits for the address may then read the file.
        if options["names"] is not None:
            options["names"].parent.mkdir(parents=True, exist_ok=True)
            write_whole(options["names"], json.dumps(names, indent=1))
        print_rendered(make_grid(names.items()))
        print_line()
        print_line(f"export SPANNER_EMULATOR_HOST={simulator.host}")
        with at_rest():
            is_over.wait()
    print_line(f"{simulator.transactions:,} transactions since {to_rfc3339(simulator.origin_micros)}")


def to_settings(options: dict[str, Any]) -> SimulatorSettings:
    """Return the settings of the simulator from the command's parsed options.

    Raises:
        SettingError: an option is invalid.
    """
    names = {field.name for field in fields(SimulatorSettings)} & {*options} - {"faults"}
    origin = options["origin"]
    return SimulatorSettings(
        **{name: options[name] for name in names},
        origin_micros=micros_of_setting("--origin", origin) if origin is not None else None,
        faults=parse_faults(options["faults"]),
    )


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Return the faults of a list; `all` are those from which a reader can recover.

    Raises:
        SettingError: a name is unknown.
    """
    if text.strip() == ALL_FAULTS:
        return PASSING_FAULTS
    names = [name.strip() for name in text.split(",") if name.strip()]
    typos = [name for name in names if name not in [*Fault]]
    if typos:
        raise SettingError("--faults", f"knows {', '.join(Fault)} and {ALL_FAULTS}, but not: {typos[0]}")
    return tuple(map(Fault, names))
