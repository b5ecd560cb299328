"""Ending on a signal: what the program says, and how it exits."""

import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cdc_platform.errors import CdcError, SetupError, TransactionIncomplete
from cdc_platform.stopping import stop_signals

INTERRUPTED = 130
TERMINATED = 143


@pytest.fixture(autouse=True)
def others_speak_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The first signal silences all loggers of the process, and anyone who writes to its error stream."""
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    yield
    logging.disable(logging.NOTSET)


@contextmanager
def exits_with(code: int) -> Iterator[None]:
    """Fail unless the block ends the program with this code."""
    with pytest.raises(SystemExit) as caught:
        yield
    assert code == caught.value.code


def test_the_first_signal_lets_the_step_end(capfd: pytest.CaptureFixture[str]) -> None:
    """It says so, makes others silent, and the program continues until it asks."""
    quiet: list[str] = []
    with stop_signals(lambda: quiet.append("asked")) as stop:
        assert stop.is_not_asked()
        signal.raise_signal(signal.SIGTERM)
        assert not stop.is_not_asked()
        print("a thread of Spark's", file=sys.stderr)  # noqa: T201  what others do
    assert (stop.exit_code, quiet) == (TERMINATED, ["asked"])
    assert (
        capfd.readouterr().err == "Stopping once the running work is done; a second signal stops at once.\n"
    )


def test_the_second_signal_ends_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    """The exit code is that of the first one, and the last line says what comes next."""
    with exits_with(TERMINATED), stop_signals():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert capfd.readouterr().err.endswith(
        "\nStopped in the middle of a step; the next start continues from there.\n"
    )


@pytest.mark.parametrize("error", [RuntimeError("the JVM is gone"), SetupError("Spark did not start")])
def test_what_breaks_after_a_signal_is_no_error(error: Exception) -> None:
    """A signal to the process group takes Spark along: the step breaks, and that is no news."""
    with exits_with(INTERRUPTED), stop_signals():
        signal.raise_signal(signal.SIGINT)
        raise error


def test_what_breaks_while_another_handles_signals_is_no_error() -> None:
    """While its session starts, Spark handles Ctrl-C itself, and breaks in its own way."""
    with exits_with(INTERRUPTED), stop_signals():
        signal.signal(signal.SIGINT, lambda _number, _frame: None)
        signal.raise_signal(signal.SIGINT)
        raise SetupError("Spark did not start")


def test_an_error_of_the_pipeline_is_reported_nevertheless() -> None:
    """A signal does not hide an error in the data."""

    def fail_after_signal() -> None:
        with stop_signals():
            signal.raise_signal(signal.SIGINT)
            raise TransactionIncomplete("t", 2, 1)

    with pytest.raises(TransactionIncomplete):
        fail_after_signal()


@pytest.mark.parametrize(
    "error", [RuntimeError("a defect"), CdcError("a known error"), SetupError("no Java")]
)
def test_without_a_signal_errors_are_errors(error: Exception) -> None:
    """Nothing is swallowed."""
    with pytest.raises(type(error), match=str(error)), stop_signals():
        raise error


def test_afterwards_signals_do_what_they_did() -> None:
    """The previous handlers are back."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with stop_signals():
        assert before != [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
