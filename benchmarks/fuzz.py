"""Fuzzing of the decoders for as long as you like: `python -m benchmarks.fuzz --minutes 10`.

It takes inputs as the tests do (`cdc_platform_tests/fuzzing`), others each time, and ends at the first one
that has no documented outcome. Put the line that it prints into the decoder's file in `fuzzing/corpus`.
"""

import argparse
import time
from base64 import b64encode

from hypothesis import given, seed

from cdc_platform_tests.fuzzing.targets import Target, run, sized, targets

EXAMPLES = 500


def fuzz(name: str, target: Target, number: int) -> None:
    """Check as many inputs of a decoder as are made of a number."""
    last = b""

    @sized(EXAMPLES)
    @seed(number)
    @given(target.inputs)
    def check(data: bytes) -> None:
        nonlocal last
        last = data
        run(target, data)

    try:
        check()
    except BaseException:
        print(f"{name}.txt: {b64encode(last).decode()}")
        raise


def main() -> None:
    """Fuzz until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--target", choices=sorted(targets()))
    options = parser.parse_args()
    end_s = time.monotonic() + 60 * options.minutes
    found = {name: it for name, it in targets().items() if options.target in (None, name)}
    number = rounds = time.time_ns() % 2**32
    while time.monotonic() < end_s:
        for name, target in found.items():
            fuzz(name, target, number)
        number += 1
    inputs = (number - rounds) * EXAMPLES
    print(f"{inputs} inputs of each of {', '.join(found)}: all have a documented outcome.")


if __name__ == "__main__":
    main()
