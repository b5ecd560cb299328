"""Captures of a real engine on a real server, as golden files.

Run it as `python -m cdc_platform_tests.sources.debezium.captures FOLDER [CASE ...]`. Each case has a database
of its own. Its events go to CASE.jsonl, and the rows and columns that the server has in the end to
CASE.truth.json.
"""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cdc_platform.errors import CaptureStopped
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform.sources.debezium.wire.stored_blocks import use_blocks_of, with_blocks
from cdc_platform_tests.servers.postgresql import LOGICAL, Cluster, cluster, postgresql_programs
from cdc_platform_tests.sources.debezium.captured_cases import KEYS, TYPED, Case
from cdc_platform_tests.sources.debezium.captured_traffic import TRAFFIC
from cdc_platform_tests.sources.debezium.spooled import capture_until_caught_up
from cdc_platform_tests.support.debezium.databases import connect, database, play, settings_for, truth

CASES: Final = [*TYPED, KEYS, *TRAFFIC]
RUN_WITHIN_S: Final = 120.0


def capture_case(server: Cluster, case: Case, folder: Path) -> None:
    """Capture a case into a folder."""
    with database(server, case.name), TemporaryDirectory() as spool:
        settings = replace(
            settings_for(server, case.name, Path(spool), **case.properties),
            with_schemas=case.with_schemas,
            snapshot=case.snapshot,
        )
        play(server, case.name, case.setup)
        capture_until_caught_up(settings, RUN_WITHIN_S)
        play(server, case.name, case.steps)
        with suppress(*([CaptureStopped] if case.stops else [])):
            capture_until_caught_up(settings, RUN_WITHIN_S)
        use_blocks_of(Path(spool))
        lines = [with_blocks(line) for file in Spool(Path(spool)).files() for line in file.lines()]
        (folder / f"{case.name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        with closing(connect(server, case.name)) as connection, closing(connection.cursor()) as cursor:
            tables = truth(cursor)
        if case.stops:
            tables["failure"] = json.loads(Spool(Path(spool)).failure.read_text(encoding="utf-8"))
        text = json.dumps(tables, indent=0, ensure_ascii=False)
        (folder / f"{case.name}.truth.json").write_text(text, encoding="utf-8")


def main(folder: Path, names: Sequence[str]) -> None:
    """Capture the named cases, or all."""
    folder.mkdir(parents=True, exist_ok=True)
    programs = postgresql_programs()
    assert programs is not None, "PostgreSQL is not installed"
    with TemporaryDirectory() as own, cluster(programs, Path(own) / "cluster", None, LOGICAL) as server:
        for case in CASES:
            if not names or case.name in names:
                started = time.monotonic()
                capture_case(server, case, folder)
                sys.stdout.write(f"{case.name}: {case.says} ({time.monotonic() - started:.1f} s)\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
