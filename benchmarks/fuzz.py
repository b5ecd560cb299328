"""Fuzzing of the decoders for as long as you like: `python -m benchmarks.fuzz --minutes 10`.

It takes inputs as the tests do (`cdc_platform_tests/fuzzing`), others each time, in processes whose memory is
limited. An input that has no documented outcome, that kills its process, or that takes too long is kept as a
file and reported, and the run continues. Put the line that it prints into the decoder's file in
`fuzzing/corpus`.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from cdc_platform_tests.fuzzing.bounds import check_in_child
from cdc_platform_tests.fuzzing.targets import targets

EXAMPLES = 500


def main() -> None:
    """Fuzz until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--target", choices=sorted(targets()))
    parser.add_argument("--folder", type=Path, help="folder for inputs with an undocumented outcome")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="cdc-fuzz-"))
    end_s = time.monotonic() + 60 * options.minutes
    chosen = {name: it for name, it in targets().items() if options.target in (None, name)}
    number = rounds = time.time_ns() % 2**32
    count = 0
    while time.monotonic() < end_s:
        for name, target in chosen.items():
            killed = check_in_child(target, number, EXAMPLES, folder / name)
            if killed is not None:
                count += 1
                print(f"{name}: {killed.ending}; kept as {killed.file}")
                print(f"{name}.txt: {killed.text}", flush=True)
        number += 1
    inputs = (number - rounds) * EXAMPLES
    outcome = f"{count} of them ended a process" if count else "all have a documented outcome"
    print(f"About {inputs} inputs of each of {', '.join(chosen)}: {outcome}.")
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
