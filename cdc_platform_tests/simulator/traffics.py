"""Random traffic of a simulator, for properties of readers."""

from typing import Final

from hypothesis import strategies as st

from cdc_platform.simulator.wire.simulator_settings import (
    PASSING_FAULTS,
    Dialect,
    PartitionMode,
    RecordSequences,
    RootParents,
    SchemaChange,
    SchemaChangeKind,
    SimulatorSettings,
)

ADDED: Final = (SchemaChange(0.5, SchemaChangeKind.ADD_PLACEMENT, value="africa"),)
"""A placement that is added; its first partition begins with the next second."""


@st.composite
def traffics(draw: st.DrawFn) -> tuple[SimulatorSettings, tuple[float, ...]]:
    """Simulated traffic of any seed, with all faults that pass, and the pauses between a reader's cycles.

    The last pause is long enough for a placement that is added to have partitions.
    """
    mode = draw(st.sampled_from(PartitionMode))
    placements = [(), ("asia",), ("asia", "europe")] if mode is PartitionMode.MUTABLE_KEY_RANGE else [()]
    placed = draw(st.sampled_from(placements))
    chosen = SimulatorSettings(
        seed=draw(st.integers(0, 2**32)),
        dialect=draw(st.sampled_from(Dialect)),
        rate=draw(st.sampled_from([1.0, 30.0, 120.0])),
        partitions=draw(st.sampled_from([1, 3, 12])),
        partition_life_s=draw(st.sampled_from([0.05, 0.4, 2.0])),
        accounts=30,
        banks=draw(st.sampled_from([1, 2])),
        keep_transfers=draw(st.sampled_from([10, 1000])),
        faults=draw(st.sampled_from([(), PASSING_FAULTS])),
        fault_probability=0.15,
        stall_s=draw(st.sampled_from([0.001, 0.3])),
        partition_mode=mode,
        placements=placed,
        schema_changes=draw(st.sampled_from([(), ADDED])) if placed else (),
        root_parents=draw(st.sampled_from(RootParents)),
        record_sequences=draw(st.sampled_from(RecordSequences)),
    )
    pauses_s = draw(st.lists(st.sampled_from([0.000_001, 0.01, 0.3, 0.9]), min_size=1, max_size=5))
    return chosen, (*pauses_s, *[1.5] * len(chosen.schema_changes))
