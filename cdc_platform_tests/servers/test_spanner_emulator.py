import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cdc_platform_tests.servers.spanner_emulator import (
    Emulator,
    EmulatorMissing,
    find_emulator,
    open_emulator,
)


def program(folder: Path, name: str, script: str = "exit 0") -> Path:
    """Make a program in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_setting_comes_first(tmp_path: Path) -> None:
    """The path in the environment is taken, and nothing else is looked for."""
    named = program(tmp_path / "named", "my_emulator")
    program(tmp_path / "bin", "emulator_main")
    environment = {"CDC_PLATFORM_SPANNER_EMULATOR": str(named), "PATH": str(tmp_path / "bin")}

    assert find_emulator(environment) == named
    wrong = str(tmp_path / "none")
    with pytest.raises(EmulatorMissing, match=f"CDC_PLATFORM_SPANNER_EMULATOR names no program.*{wrong}"):
        find_emulator({**environment, "CDC_PLATFORM_SPANNER_EMULATOR": wrong})


def test_emulator_on_the_path(tmp_path: Path) -> None:
    """A program on the PATH is found."""
    on_path = program(tmp_path, "emulator_main")

    assert find_emulator({"PATH": str(tmp_path)}) == on_path


def test_emulator_in_the_folder_of_gcloud(tmp_path: Path) -> None:
    """The emulator is found in the folder of gcloud, which may be a link."""
    gcloud = program(tmp_path / "sdk" / "bin", "gcloud")
    emulator = program(tmp_path / "sdk" / "bin" / "cloud_spanner_emulator", "emulator_main")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "gcloud").symlink_to(gcloud)

    assert find_emulator({"PATH": str(tmp_path / "links")}) == emulator


def test_message_names_the_ways(tmp_path: Path) -> None:
    """Where there is none, the error says how to get one."""
    with pytest.raises(EmulatorMissing) as caught:
        find_emulator({"PATH": str(tmp_path)})

    for way in ("gcloud components install", "CDC_PLATFORM_SPANNER_EMULATOR", "SPANNER_EMULATOR_HOST"):
        assert way in str(caught.value)


def test_running_emulator_is_used(tmp_path: Path) -> None:
    """An address in the environment is used as it is, and one that does not answer is reported."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        environment = {"SPANNER_EMULATOR_HOST": address, "PATH": str(tmp_path)}
        with open_emulator(environment=environment) as host:
            assert host == address
    for wrong in (address, "nothing"):
        environment = {"SPANNER_EMULATOR_HOST": wrong}
        with (
            pytest.raises(EmulatorMissing, match=f"SPANNER_EMULATOR_HOST, which is {wrong}"),
            open_emulator(environment=environment),
        ):
            pytest.fail("it was taken")


def test_program_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    """The error contains the program's output."""
    broken = program(tmp_path, "emulator_main", "echo no such flag >&2; exit 1")

    with pytest.raises(EmulatorMissing, match="no such flag"), Emulator(broken):
        pytest.fail("it started")


@pytest.mark.integration
def test_emulators_are_separate_and_end(emulator: str) -> None:
    """Each emulator has a separate port, and is gone after its context."""
    with open_emulator(60, {"PATH": os.environ["PATH"]}) as other:
        assert other != emulator
        assert is_up(other)
    assert not is_up(other)
    assert is_up(emulator)


@pytest.mark.integration
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_emulator_ends_with_its_parent(emulator: str) -> None:
    """A killed parent leaves no emulator behind."""
    script = (
        "import os, time\n"
        "from cdc_platform_tests.servers.spanner_emulator import open_emulator\n"
        "with open_emulator(environment={'PATH': os.environ['PATH']}) as host:\n"
        "    print(host, flush=True)\n"
        "    time.sleep(60)\n"
    )
    root = Path(__file__).parents[2]
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=root)
    assert parent.stdout is not None
    with parent.stdout as output:
        host = output.readline().strip()
        assert is_up(host)
        parent.kill()
        parent.wait()

    give_up_at_s = time.monotonic() + 60.0
    while is_up(host) and time.monotonic() < give_up_at_s:
        time.sleep(0.05)
    assert not is_up(host)
    assert is_up(emulator)


def is_up(host: str) -> bool:
    """Return whether a server answers at the address."""
    name, port = host.split(":")
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((name, int(port))) == 0
