"""Files of a folder: an unlistable folder is reported and hides no other; a silent store blocks nobody."""

import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from cdc_platform.errors import AccessDenied, LibraryMissing, SettingError, SourceNotFound, SourceUnreachable
from cdc_platform.sources import file_store
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.source import DatastreamSource
from cdc_platform.sources.debezium.files.decoding import event_files
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput
from cdc_platform.sources.file_store import FileStore, store_error_of

MINUTE = "2026/01/31/08/00"


class LockedFolders(fs.FSSpecHandler):  # type: ignore[misc] # pyarrow ships no types
    """A file system in which folders of some names may not be listed, as for a user who is not root."""

    def __init__(self, locked: set[str]) -> None:
        import fsspec  # type: ignore[import-untyped] # ships no types

        super().__init__(fsspec.filesystem("file"))
        self._locked = locked

    def get_file_info_selector(self, selector: Any) -> Any:
        """Return what is in a folder, unless it, or one below it that is asked for, too, is locked."""
        folder = Path(selector.base_dir)
        paths = {folder, *(folder.rglob("*") if selector.recursive else ())}
        if any(path.name in self._locked for path in paths):
            raise PermissionError(f"Permission denied: {folder}")
        return super().get_file_info_selector(selector)

    def open_input_stream(self, path: str) -> Any:
        """Return a file's content, and refuse what is locked."""
        if Path(path).name in self._locked:
            raise PermissionError(f"Permission denied: {path}")
        return super().open_input_stream(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with files of three objects, and one of no object."""
    for name in (f"a/{MINUTE}/1.jsonl", f"b/{MINUTE}/2.jsonl", "c/3.jsonl", "4.jsonl", f"b/{MINUTE}/x.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    return tmp_path


def listed(root: Path) -> dict[str, str]:
    """Return the object of each file."""
    files = FileStore(str(root), (".jsonl",)).list_files()
    return {Path(file.path).relative_to(root).as_posix(): file.folder for file in files}


def lock(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let folders of these names be unreadable."""
    system = fs.PyFileSystem(LockedFolders(set(names)))
    monkeypatch.setattr(file_store, "_open", lambda location, *_: (system, location))


WHOLE = {f"a/{MINUTE}/1.jsonl": "a", f"b/{MINUTE}/2.jsonl": "b", "c/3.jsonl": "c", "4.jsonl": "."}


def test_files_belong_to_their_object(root: Path) -> None:
    """The object is the folder before the time; other files are left out."""
    assert listed(root) == WHOLE


def test_a_locked_folder_is_one_that_cannot_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands for its files, at its object, and all others are listed; to read it says why."""
    lock(monkeypatch, "b", "31")
    (root / f"a/{MINUTE}").rename(root / "a/moved")
    (root / "d/2026/01/31").mkdir(parents=True)
    others = {name: folder for name, folder in WHOLE.items() if folder not in "ab"}
    expected = {**others, "a/moved/1.jsonl": "a/moved", "a/2026/01/31": "a", "b": "b", "d/2026/01/31": "d"}
    assert expected == listed(root)
    with pytest.raises(AccessDenied, match=r"grant this user read access to: .*/b"):
        FileStore(str(root), ()).read(str(root / "b"))


@pytest.mark.parametrize(
    "text",
    [
        # What S3 says of an unknown key, and of a wrong secret.
        "AWS Error INVALID_ACCESS_KEY_ID during ListObjectsV2: The Key Id does not exist in our records.",
        "AWS Error SIGNATURE_DOES_NOT_MATCH during ListObjectsV2: The request signature does not match.",
        "google::cloud::Status(PERMISSION_DENIED: no storage.objects.list)",
        "AWS Error UNKNOWN (HTTP status 403) during HeadObject operation: No response body.",
    ],
)
def test_credentials_that_a_store_refuses_are_no_missing_folder_and_not_tried_again(text: str) -> None:
    """Only their owner can change that."""
    error = store_error_of(OSError(text), "s3://b/p", "path")
    assert isinstance(error, AccessDenied)
    assert "check the credentials" in str(error)


@pytest.mark.parametrize("name", ["part-403.jsonl", "403/a.jsonl", "access denied.jsonl"])
def test_a_missing_file_whose_name_looks_like_a_refusal_is_missing(root: Path, name: str) -> None:
    """Only the store's own words count, not the names in them."""
    with pytest.raises(SourceNotFound):
        FileStore(str(root), ()).read(str(root / name))

    text = (
        f"When reading information for key '{name}' in bucket 'b': AWS Error NO_SUCH_KEY: It does not exist."
    )
    assert isinstance(store_error_of(OSError(text), f"s3://b/{name}", "path"), SourceNotFound)


def test_a_source_that_may_not_be_listed_at_all_is_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have no effect, without any report."""
    lock(monkeypatch, root.name)
    with pytest.raises(AccessDenied):
        listed(root)


def test_a_missing_folder_names_the_setting_of_its_source(tmp_path: Path) -> None:
    """Each kind of source has another setting for its folder."""
    place = str(tmp_path / "nowhere")
    engine = EngineInput("host", "database", "user", place)
    stores = {
        "path": DatastreamSource(DatastreamSettings(place)).store,
        "input.files.path": event_files(DebeziumSettings(FilesInput(place))),
        "input.engine.spool": event_files(DebeziumSettings(engine)),
    }
    for setting, store in stores.items():
        with pytest.raises(SourceNotFound, match=f"check the setting `source.{setting}`: {place}"):
            list(store.list_files())


def test_a_name_that_is_no_text_hides_no_other_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Arrow cannot read a file whose name is not UTF-8: it is left out, and named in the log."""
    (tmp_path / "a.json").write_text("{}")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xff.json")).write_text("{}")
    assert [file.path for file in FileStore(str(tmp_path), (".json",)).list_files()] == [
        str(tmp_path / "a.json")
    ]
    assert "b\\xff.json. Rename it." in "\n".join(caplog.messages)


def test_a_store_that_does_not_answer_holds_nobody() -> None:
    """A server that accepts calls and says nothing is given up at the deadline, with what to check."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"gs://anonymous@bucket/p?scheme=http&endpoint_override=127.0.0.1:{server.getsockname()[1]}"
        begun_s = time.monotonic()
        with pytest.raises(SourceUnreachable, match=r"within 0\.5 s; check .* credentials .*: gs://"):
            FileStore(place, (), deadline_s=0.5)
        assert time.monotonic() - begun_s < 5.0


def test_a_store_that_cannot_be_reached_is_reported() -> None:
    """Google's client gives up within the deadline, too, and its reason is reported."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    place = f"gs://anonymous@bucket/p?scheme=http&endpoint_override=127.0.0.1:{port}"
    with pytest.raises(SourceUnreachable, match=r"check the network .*Retry policy exhausted"):
        FileStore(place, (), deadline_s=6.0)


@pytest.mark.parametrize(
    ("location", "error", "message"),
    [
        ("oss://bucket/p", SettingError, "`path` has the unsupported scheme `oss`"),
        ("file:///a b", SettingError, "`path` is not an address that can be read .*: file:///a b"),
        ("gs:///p", SettingError, "`path` is not an address that can be read .*: gs:///p"),
    ],
)
def test_what_is_no_place_is_a_mistake_of_the_settings(
    location: str, error: type[Exception], message: str
) -> None:
    """To try it again would not help."""
    with pytest.raises(error, match=message):
        FileStore(location, ())


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """HDFS is read by Hadoop's own library, and not being there it is not a source without an answer."""

    def refuse(_location: str, _deadline_s: float) -> None:
        raise OSError("Unable to load libhdfs: ./libhdfs.so: cannot open shared object file")

    monkeypatch.setattr(file_store, "arrow_location", refuse)
    with pytest.raises(LibraryMissing, match=r"set JAVA_HOME, HADOOP_HOME and CLASSPATH .*: hdfs://name/p"):
        FileStore("hdfs://name/p", ())
