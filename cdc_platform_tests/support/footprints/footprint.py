"""Resources that a process with a Spark session holds: memory, threads, handles, files, what Spark keeps."""

import gc
import math
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

PROC: Final = Path("/proc")
POOLS: Final = (
    *("block-manager-", "broadcast-excha", "subquery-", "shuffle-exchang"),
    *("QueryStageCreat", "ResultQueryStag", "iceberg-"),
)
"""Beginnings, as Linux cuts them, of the names of threads in pools that grow to a fixed size."""

COLLECTIONS_MAX: Final = 10
CLEANER_MS: Final = 300
"""So long Spark's cleaner has between two collections."""
STEADY_SHARE: Final = 0.98
"""A collection after which more than this part of the heap is still used is the last one."""


@dataclass(frozen=True)
class Footprint:
    """Resources that are cheap to count.

    Args:
        cached_plans: entries of Spark's cache manager.
        persisted_rdds: RDDs that Spark keeps.
        executions: past SQL executions that Spark keeps for its UI.
        python_handles: open file descriptors of this process.
        java_handles: open file descriptors of the session's Java process.
        python_threads: threads of this process.
        java_threads: threads of the session's Java process but for those of Spark's pools.
        pool_threads: threads of Spark's pools.
        workers: processes that Java has started, such as Spark's Python workers.
        allocators: of Iceberg's vectorised reader, which closes none of them.
        processor_s: processor time so far of this process, of Java and of the workers.
    """

    cached_plans: int
    persisted_rdds: int
    executions: int
    python_handles: int
    java_handles: int
    python_threads: int
    java_threads: int
    pool_threads: int
    workers: int
    allocators: int
    processor_s: float


@dataclass(frozen=True)
class Memory:
    """Resources that are counted after a full garbage collection of both processes.

    Args:
        heap_bytes: used heap of Java.
        non_heap_bytes: used memory of Java outside its heap: classes, compiled code.
        block_bytes: what Spark's block manager holds: broadcasts, persisted RDDs.
        java_rss_bytes: resident memory of Java.
        python_rss_bytes: resident memory of this process.
        python_objects: objects that Python's garbage collector knows.
    """

    heap_bytes: int
    non_heap_bytes: int
    block_bytes: int
    java_rss_bytes: int
    python_rss_bytes: int
    python_objects: int


@dataclass(frozen=True)
class Tree:
    """Files below a folder.

    Args:
        files: how many there are.
        folders: how many folders there are.
        size_bytes: bytes of all files.
    """

    files: int
    folders: int
    size_bytes: int


@dataclass(frozen=True)
class Session:
    """A classic Spark session, seen through the gateway to its Java process."""

    spark: Any
    java: int

    @classmethod
    def of(cls, spark: SparkSession) -> "Session":
        """Return the session with the process id of its Java."""
        classic: Any = spark
        return cls(classic, int(classic._jvm.java.lang.ProcessHandle.current().pid()))  # noqa: SLF001  the gateway has no other name

    def measure(self) -> Footprint:
        """Count what is cheap to count."""
        workers = list(_descendants(self.java))
        mine, threads = os.getpid(), _threads(self.java)
        pooled = sum(name.startswith(POOLS) for name in threads)
        return Footprint(
            cached_plans=int(self._shared_state().cacheManager().numCachedEntries()),
            persisted_rdds=int(self.spark._jsc.getPersistentRDDs().size()),  # noqa: SLF001  as above
            executions=int(self._shared_state().statusStore().executionsCount()),
            python_handles=_count(mine, "fd"),
            java_handles=_count(self.java, "fd"),
            python_threads=_count(mine, "task"),
            java_threads=len(threads) - pooled,
            pool_threads=pooled,
            workers=len(workers),
            allocators=self._allocators(),
            processor_s=sum(map(_processor_s, (mine, self.java, *workers))),
        )

    def memory(self) -> Memory:
        """Collect garbage in both processes, and measure what is left."""
        gc.collect()
        bean = self.spark._jvm.java.lang.management.ManagementFactory.getMemoryMXBean()  # noqa: SLF001  as above
        return Memory(
            heap_bytes=self._live_bytes(bean),
            non_heap_bytes=int(bean.getNonHeapMemoryUsage().getUsed()),
            block_bytes=self._block_bytes(),
            java_rss_bytes=_rss_bytes(self.java),
            python_rss_bytes=_rss_bytes(os.getpid()),
            python_objects=len(gc.get_objects()),
        )

    def _live_bytes(self, bean: Any) -> int:
        """Collect garbage until no more of it turns up, and return the used heap.

        A collection lets Spark's cleaner release blocks of frames that are gone, which the next one collects.
        """
        lang, used, before = self.spark._jvm.java.lang, math.inf, math.inf  # noqa: SLF001  as above
        for _ in range(COLLECTIONS_MAX):
            before = used
            lang.System.gc()
            lang.Thread.sleep(CLEANER_MS)
            used = int(bean.getHeapMemoryUsage().getUsed())
            if used > before * STEADY_SHARE:
                break
        return int(min(used, before))

    def histogram(self) -> dict[str, int]:
        """Return the bytes of live Java objects by class; nothing where Java comes without its tools."""
        if shutil.which("jcmd") is None:
            return {}
        command = ["jcmd", str(self.java), "GC.class_histogram"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rows = (line.split() for line in text.splitlines())
        return {row[3]: int(row[2]) for row in rows if len(row) > 3 and row[0].rstrip(":").isdigit()}

    def _allocators(self) -> int:
        arrow = self.spark._jvm.org.apache.iceberg.arrow.ArrowAllocation  # noqa: SLF001  as above
        return int(arrow.rootAllocator().getChildAllocators().size())

    def _shared_state(self) -> Any:
        return self.spark._jsparkSession.sharedState()  # noqa: SLF001  as above

    def _block_bytes(self) -> int:
        pools = self.spark._jsc.sc().getExecutorMemoryStatus().values().toList()  # noqa: SLF001  as above
        amounts = [pools.apply(number) for number in range(pools.size())]
        return sum(int(pool._1()) - int(pool._2()) for pool in amounts)  # noqa: SLF001  fields of a Scala pair


def tree_of(*folders: Path) -> Tree:
    """Count what is below folders; what vanishes meanwhile does not count."""
    files = directories = size = 0
    for folder in folders:
        for root, names, file_names in os.walk(folder):
            directories += len(names)
            files += len(file_names)
            size += sum(_size_of(Path(root) / name) for name in file_names)
    return Tree(files, directories, size)


def _size_of(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def _count(process: int, kind: str) -> int:
    return sum(1 for _ in (PROC / str(process) / kind).iterdir())


def _threads(process: int) -> list[str]:
    names = list[str]()
    for task in (PROC / str(process) / "task").iterdir():
        # It may end meanwhile.
        with suppress(FileNotFoundError, ProcessLookupError):
            names.append((task / "comm").read_text())
    return names


def _descendants(process: int) -> Iterator[int]:
    for task in (PROC / str(process) / "task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in map(int, children):
            yield child
            yield from _descendants(child)


def _processor_s(process: int) -> float:
    try:
        # The name, in parentheses, may hold spaces.
        fields = (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _rss_bytes(process: int) -> int:
    pages = int((PROC / str(process) / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
