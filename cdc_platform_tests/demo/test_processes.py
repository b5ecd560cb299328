"""Child processes of the demo, which stop with it in every case."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.demo.processes import HOME_VARIABLE, Children, end_leftovers
from cdc_platform.errors import SetupError

WITHIN_S = 120.0
"""A busy machine is slow, not wrong."""
SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
PARENT = """
import sys, time
from pathlib import Path
from cdc_platform.demo.processes import Children
home = Path(sys.argv[1])
with Children(home, home) as children:
    children.start("sleeper", [sys.executable, "-c", "import time; time.sleep(600)"])
    print(children._processes["sleeper"].pid, flush=True)
    time.sleep(600)
"""
GRANDPARENT = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment variable that marks children goes with the test."""
    monkeypatch.setenv(HOME_VARIABLE, "")


def wait_for(text: str, path: Path) -> None:
    """Wait until a log says something."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline and (not path.exists() or text not in path.read_text()):
        time.sleep(0.02)
    assert text in path.read_text()


def is_alive(pid: int) -> bool:
    """Return whether a process runs."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def has_ended(pid: int) -> bool:
    """Return whether a process ends within some seconds."""
    deadline = time.monotonic() + WITHIN_S
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_alive(pid)


def marked(home: Path) -> list[int]:
    """Return the living processes that carry a home's mark."""
    mark = f"{HOME_VARIABLE}={home}".encode()
    processes = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            is_marked = mark in environ.read_bytes().split(b"\0")
        except OSError:
            continue
        if is_marked and is_alive(int(environ.parent.name)):
            processes.append(int(environ.parent.name))
    return processes


def check_for_a_while(children: Children) -> None:
    """Check again and again: a process that has said its last words has not ended yet."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        children.check()
        time.sleep(0.02)


def test_children_end_with_the_context(tmp_path: Path) -> None:
    """The demo's processes are gone when it ends, and have written their logs."""
    with Children(tmp_path, tmp_path) as children:
        children.start("sleeper", SLEEP)
        wait_for("up", tmp_path / "sleeper.log")
        children.check()
        assert marked(tmp_path)
    assert marked(tmp_path) == []


def test_grandchildren_end_too(tmp_path: Path) -> None:
    """A process that a child has started does not outlive the stop of that child; others do."""
    with Children(tmp_path, tmp_path) as children:
        children.start("other", SLEEP)
        children.start("parent", [sys.executable, "-c", GRANDPARENT])
        deadline = time.monotonic() + WITHIN_S
        while len(marked(tmp_path)) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(marked(tmp_path)) == 3
        children.stop("parent", signal.SIGKILL)
        # Nobody waits for a grandchild: the system ends it a moment after its signal.
        while len(marked(tmp_path)) > 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(marked(tmp_path)) == 1


def test_a_grandchild_that_is_just_starting_ends_too(tmp_path: Path) -> None:
    """A process that is becoming another program has no environment for a moment, and is found."""
    for _ in range(100):
        with subprocess.Popen(["/bin/sleep", "600"], env={HOME_VARIABLE: str(tmp_path)}) as process:
            end_leftovers(tmp_path)
            assert process.wait(WITHIN_S) == -signal.SIGKILL


def test_a_dead_child_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    """When a part of the demo ends unexpectedly, the demo reports its name and its output."""
    with Children(tmp_path, tmp_path) as children:
        children.start("broken", [sys.executable, "-c", "import sys; sys.exit('no money left')"])
        wait_for("no money left", children.log_of("broken"))
        with pytest.raises(SetupError, match=r"`broken` has ended(?s:.)*no money left"):
            check_for_a_while(children)


def test_children_obey_a_signal_that_the_demo_ignores(tmp_path: Path) -> None:
    """A child does not inherit that its parent ignores SIGTERM, so it ends at once and need not be killed."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with Children(tmp_path, tmp_path) as children:
            children.start("sleeper", SLEEP)
            wait_for("up", tmp_path / "sleeper.log")
            child = children._processes["sleeper"]  # noqa: SLF001  how it ends is seen nowhere else
        assert child.returncode == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_what_the_demo_itself_has_started_ends_by_itself(tmp_path: Path) -> None:
    """A process that is not a named child, such as a session's Java, may finish what it does at its end."""
    finished = tmp_path / "finished"
    finishing = f"""
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), Path({str(finished)!r}).touch(), sys.exit()))
print("up", flush=True)
time.sleep(600)
"""
    with Children(tmp_path, tmp_path):
        process = subprocess.Popen([sys.executable, "-c", finishing], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
    assert finished.exists()
    assert process.wait() == 0
    process.stdout.close()


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's parent death signal")
def test_children_die_with_a_killed_demo(tmp_path: Path) -> None:
    """`kill -9` of the demo alone ends its children."""
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        child = int(demo.stdout.readline())
        os.kill(demo.pid, signal.SIGKILL)
    assert has_ended(child)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_leftovers_of_an_earlier_demo_are_ended(tmp_path: Path) -> None:
    """A process that outlived an earlier demo of the same home is ended, one of another home is not."""
    homes = {name: tmp_path / name for name in ("mine", "other")}
    processes = {
        name: subprocess.Popen(SLEEP, env=os.environ | {HOME_VARIABLE: str(home)}, stdout=subprocess.PIPE)
        for name, home in homes.items()
    }
    for process in processes.values():
        assert process.stdout is not None
        process.stdout.readline()
    end_leftovers(homes["mine"])
    assert has_ended(processes["mine"].pid)
    assert is_alive(processes["other"].pid)
    for process in processes.values():
        process.kill()
        process.communicate()


def test_all_processes_end_at_the_same_time(tmp_path: Path) -> None:
    """Each is signalled before any has ended: here each waits until the other has its signal, too."""
    meeting = """
import signal, sys, time
from pathlib import Path
mine, other = map(Path, sys.argv[1:])
def end(*_):
    mine.touch()
    while not other.exists():
        time.sleep(0.02)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
time.sleep(600)
"""
    places = [tmp_path / "first", tmp_path / "second"]
    with Children(tmp_path, tmp_path) as children:
        for mine, other in (places, reversed(places)):
            children.start(mine.name, [sys.executable, "-c", meeting, str(mine), str(other)])
            wait_for("up", children.log_of(mine.name))
        processes = list(children._processes.values())  # noqa: SLF001  how they end is seen nowhere else
    assert [process.returncode for process in processes] == [0, 0]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_process_that_does_not_end_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed when its time is up, and not asked again."""
    monkeypatch.setattr("cdc_platform.demo.processes.STOP_WITHIN_S", 1.0)
    deaf = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
print("up", flush=True)
time.sleep(600)
"""
    with Children(tmp_path, tmp_path) as children:
        children.start("deaf", [sys.executable, "-c", deaf])
        wait_for("up", children.log_of("deaf"))
    assert children.log_of("deaf").read_text() == "up\nasked\n"
    assert marked(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_nobody_waits_for_the_archive_of_java(tmp_path: Path) -> None:
    """A process that stores its classes as it ends gets its signal, and finishes after the demo."""
    released, finished = tmp_path / "released", tmp_path / "finished"
    storing = f"""
import signal, sys, time
from pathlib import Path
def store(*_):
    while not Path({str(released)!r}).exists():
        time.sleep(0.02)
    Path({str(finished)!r}).touch()
    sys.exit()
signal.signal(signal.SIGTERM, store)
print("up", flush=True)
time.sleep(600)
"""
    with Children(tmp_path, tmp_path) as children:
        children.start("java", [sys.executable, "-c", storing, "-XX:ArchiveClassesAtExit=classes.jsa"])
        wait_for("up", children.log_of("java"))
        java = children._processes["java"]  # noqa: SLF001  it is seen nowhere else
    assert is_alive(java.pid)
    released.touch()
    assert java.wait(WITHIN_S) == 0
    assert finished.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN], ids=["front", "background"])
def test_a_process_whose_descendants_hang_still_cleans_up(
    tmp_path: Path, handler: Any, request: pytest.FixtureRequest
) -> None:
    """A process that waits too long for its own child loses that child, and ends by itself.

    A shell that starts the demo in the background makes it ignore SIGINT, which its processes would inherit.
    """
    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, handler)))
    waiting = f"""
import subprocess, sys, time
from pathlib import Path
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
try:
    print("up", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    child.wait()
    Path({str(tmp_path / "cleaned")!r}).touch()
"""
    with Children(tmp_path, tmp_path) as children:
        children.start("waiting", [sys.executable, "-c", waiting])
        wait_for("up", children.log_of("waiting"))
        children.stop("waiting", signal.SIGINT, 0.2)
        assert marked(tmp_path) == []
    assert (tmp_path / "cleaned").exists()
