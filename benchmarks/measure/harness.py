"""The harness of all benchmarks: arguments, interleaved rounds, and one line per measured number."""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("cdc_platform", "pyspark", "pyiceberg", "google-cloud-spanner", "pyarrow", "deltalake")


class ResultDiffers(Exception):
    """A candidate produced another result than the exact one, so its speed means nothing."""


def arguments(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    default = Path(tempfile.gettempdir()) / "cdc_platform_benchmarks"
    parser.add_argument("--work", type=Path, default=default, help="folder of inputs and scratch tables")
    parser.add_argument("--out", type=Path, default=None, help="JSON-line file to add to (WORK/NAME.jsonl)")
    parser.add_argument("--seed", type=int, default=20261121, help="seed of all generated inputs")
    return parser


@dataclass
class Report:
    """Prints numbers and keeps them as JSON lines, each with the machine and the versions it was taken on."""

    benchmark: str
    options: argparse.Namespace
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Note where and with what the numbers are taken."""
        self.options.work.mkdir(parents=True, exist_ok=True)
        self.path: Path = self.options.out or self.options.work / f"{self.benchmark}.jsonl"
        settings = {key: value for key, value in vars(self.options).items() if key not in {"work", "out"}}
        self.facts = {"cores": os.cpu_count(), "python": platform.python_version(), **versions(), **settings}

    def note(self, what: str, value: float, unit: str, **details: object) -> None:
        """Print one number and add it to the file."""
        shown = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
        extra = " ".join(f"{key}={value}" for key, value in details.items())
        print(f"{what:<52} {shown:>14} {unit:<14} {extra}", flush=True)
        line = {
            "benchmark": self.benchmark,
            "what": what,
            "value": value,
            "unit": unit,
            **details,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "facts": self.facts,
        }
        with self.path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line, default=str) + "\n")

    def compare(self, seconds: Mapping[str, Sequence[float]], ours: str, work: float, unit: str) -> None:
        """Report each candidate's best and median, and how many times as long as ours each peer took."""
        for name, rounds in seconds.items():
            best, median = min(rounds), statistics.median(rounds)
            self.note(name, best, "s", median=round(median, 3), rounds=len(rounds))
            self.note(f"{name}: rate", work / best, unit)
        for name, rounds in seconds.items():
            if name != ours:
                ratio = statistics.median(rounds) / statistics.median(seconds[ours])
                self.note(f"{name} / {ours}", ratio, "x (medians)")


def versions() -> dict[str, str]:
    """Return the versions of the libraries that a number depends on, as far as they are installed."""
    by_library = {}
    for package in PACKAGES:
        try:
            by_library[package] = version(package)
        except PackageNotFoundError:
            continue
    return by_library


def interleaved(rounds: int, candidates: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Run every candidate once a round, in turn, so that noise of the machine falls on all of them.

    Each candidate returns its own seconds, which leave out its preparation and its verification.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(1, rounds + 1):
        for name, run in candidates.items():
            taken = run()
            seconds[name].append(taken)
            print(f"  round {number}/{rounds} {name}: {taken:.3f} s", flush=True)
    return seconds


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that the work takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def must_equal(expected: object, actual: object, what: str) -> None:
    """Stop the benchmark unless a result is exactly right.

    Raises:
        ResultDiffers: it is not.
    """
    if expected != actual:
        raise ResultDiffers(f"{what}: expected {expected}, found {actual}")


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 100) * len(ordered) // 100) - 1)]
