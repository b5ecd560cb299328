"""For any input, decoders return changes, faults or documented errors, and the neighbours arrive."""

import pytest
from hypothesis import given

from cdc_platform_tests.fuzzing.bounds import run, sized
from cdc_platform_tests.fuzzing.known_inputs import corpus
from cdc_platform_tests.fuzzing.stored import KINDS
from cdc_platform_tests.fuzzing.targets import targets

TARGETS = targets()


@pytest.mark.parametrize("name", TARGETS)
def test_what_has_stopped_a_decoder_does_so_no_more(name: str) -> None:
    """Every input of the corpus has one of the documented outcomes, in bounded time and memory."""
    for data in corpus(name):
        run(TARGETS[name], data)


@pytest.mark.parametrize("name", KINDS)
def test_what_the_platform_writes_it_reads(name: str) -> None:
    """Every kind of text that the lake has is understood, and written again as it was."""
    kind = KINDS[name]
    for text in kind.texts:
        meaning = kind.read(text)
        assert kind.write is None or text == kind.write(meaning)


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_stops_a_decoder(name: str) -> None:
    """Inputs with something wrong in them have one of the documented outcomes, and stop no other input."""
    target = TARGETS[name]

    @sized(50, derandomize=True)
    @given(target.inputs)
    def fuzz(data: bytes) -> None:
        run(target, data)

    fuzz()
