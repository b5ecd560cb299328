"""Rules of a sound lineage of partitions."""

from cdc_platform.model.stream.lineage import Lineage, Partition, PartitionState


def violations(lineage: Lineage) -> list[str]:
    """Return the violated rules, one text for each; empty if the lineage is sound.

    A finished partition has children. A child that continues its parents starts once, at the end of its
    parents and after all of them finished, and no parent is read beyond that. A partition whose parent goes
    on starts after that parent has been read beyond its start. An unread partition holds the watermark at
    its start.
    """
    problems: list[str] = []
    continued = {parent for child in lineage.partitions.values() for parent in child.parent_tokens}
    for partition in lineage.partitions.values():
        if partition.state is PartitionState.FINISHED and partition.token not in continued:
            problems.append(f"Partition `{partition.key}` is finished and has no children")
        problems += _position_violations(partition)
        for token in partition.parent_tokens:
            if token in lineage.partitions:
                problems += _parent_violations(partition, lineage.partitions[token])
    return problems


def _position_violations(partition: Partition) -> list[str]:
    before_start = partition.start_micros - 1
    if partition.running_cycle is None and partition.position_micros != before_start:
        return [f"Partition `{partition.key}` has not been read and does not hold the watermark at its start"]
    if partition.position_micros < before_start:
        return [f"Partition `{partition.key}` has a position before its start"]
    return []


def _parent_violations(child: Partition, parent: Partition) -> list[str]:
    if parent.state is not PartitionState.FINISHED:
        if child.continues_parents and parent.position_micros >= child.start_micros:
            return [f"Partition `{parent.key}` was read beyond the start of its child `{child.key}`"]
        return _running_parent_violations(child, parent)
    problems: list[str] = []
    if child.running_cycle is not None and child.running_cycle < (parent.finished_cycle or 0):
        problems.append(f"Partition `{child.key}` was read before its parent `{parent.key}` ended")
    gap_micros = child.start_micros - 1 - parent.position_micros
    # The partition that lists those of a placement may be older than they are.
    if gap_micros < 0 or (gap_micros > 0 and child.continues_parents is not False):
        problems.append(f"Partition `{child.key}` does not start where its parent `{parent.key}` ended")
    return problems


def _running_parent_violations(child: Partition, parent: Partition) -> list[str]:
    """Return the violations of a parent that continues after the child's start or ended without children."""
    if parent.position_micros >= child.start_micros:
        return []
    if parent.is_finished:
        return [f"Partition `{child.key}` starts after its parent `{parent.key}` had ended"]
    if child.state is not PartitionState.CREATED:
        return [f"Partition `{child.key}` was started before its parent `{parent.key}` was read that far"]
    return []
