"""A pipeline's YAML file becomes its settings, or an error that says which value to change."""

from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest
import yaml

from cdc_platform.components.loading import find_pipelines, load_declared, load_settings
from cdc_platform.components.spanner import SpannerPipeline
from cdc_platform.errors import SettingError
from cdc_platform_tests.yaml_files import TYPE, bank_attributes, change_stream_of, write_defs, write_two

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_example_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the repository is a pipeline named bank with two tables, and never a real Spanner."""
    monkeypatch.delenv("SPANNER_EMULATOR_HOST", raising=False)
    settings = load_settings(EXAMPLES / "bank" / "defs.yaml")
    assert (settings.name, settings.tables) == ("bank", ("accounts", "transfers"))
    assert change_stream_of(settings).emulator_host == "localhost:9010"


def test_a_relative_lake_is_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative lake path counts from the YAML file's folder, wherever the program is started."""
    path = write_defs(tmp_path)
    monkeypatch.chdir("/")
    assert str(tmp_path / "lake") == load_settings(path).lake.path


@pytest.mark.parametrize("lake", ["gs://bucket/lake", "/data/lake"])
def test_other_lake_paths_stay_as_they_are(tmp_path: Path, lake: str) -> None:
    """An object store prefix and an absolute folder are taken as they are."""
    path = write_defs(
        tmp_path, bank_attributes(lake={"path": lake, "catalog": {"type": "rest", "uri": "https://catalog"}})
    )
    assert lake == load_settings(path).lake.path


def test_templates_read_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`{{ env.X }}` is the variable's value, and no value where it is not set."""
    monkeypatch.setenv("BANK_DATABASE", "read_progress")
    monkeypatch.delenv("BANK_REMOTE", raising=False)
    source = {**bank_attributes()["source"], "database": "{{ env.BANK_DATABASE }}"}
    attributes = bank_attributes(source=source, spark={"remote": "{{ env.BANK_REMOTE }}"})
    settings = load_settings(write_defs(tmp_path, attributes))
    assert (change_stream_of(settings).database, settings.spark.remote) == ("read_progress", None)


@pytest.mark.parametrize("password", ["0123", "123", "1e5", "1.10", "'quoted'", "[1]", "p@ss%/", "True"])
def test_texts_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    """A password or a Spark setting that looks like a number or a list is not a number and no list."""
    monkeypatch.setenv("CATALOG_TOKEN", password)
    catalog = {"type": "rest", "uri": "http://c", "token": "{{ env.CATALOG_TOKEN }}", "other": "1_0"}
    lake = {"path": "gs://b/l", "catalog": catalog}
    settings = load_settings(
        write_defs(tmp_path, bank_attributes(lake=lake, spark={"conf": {"spark.b": "2"}}))
    )
    assert {**catalog, "token": password} == settings.lake.catalog
    assert settings.spark.conf == {"spark.b": "2"}


@pytest.mark.parametrize("name", ["123", "1.10", "1e5", "True", "[1]"])
def test_names_of_the_source_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A name that looks like a number or a list is the same text, written out or from the environment."""
    monkeypatch.setenv("BANK_NAME", name)
    source = {
        **dict.fromkeys(("project", "instance", "database"), name),
        "change_stream": "{{ env.BANK_NAME }}",
    }
    attributes = bank_attributes(source={**source, "database_role": name}, tables=["{{ env.BANK_NAME }}"])
    settings = load_settings(write_defs(tmp_path, attributes))
    actual = change_stream_of(settings)
    assert {name} == {
        actual.project,
        actual.instance,
        actual.database,
        actual.change_stream,
        actual.database_role,
    }
    assert settings.tables == (name,)


def test_a_variable_may_hold_all_of_a_list_or_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written as in Python; a word is not a list of letters, and an unset one has no value."""
    monkeypatch.setenv("BANK_TABLES", "['accounts', 'transfers']")
    monkeypatch.setenv("BANK_CONF", "{'spark.b': 'c'}")
    monkeypatch.delenv("BANK_UNSET", raising=False)
    conf = {"conf": "{{ env.BANK_CONF }}"}
    path = write_defs(tmp_path, bank_attributes(tables="{{ env.BANK_TABLES }}", spark=conf))
    settings = load_settings(path)
    assert settings.tables == ("accounts", "transfers")
    assert settings.spark.conf == {"spark.b": "c"}
    assert load_settings(write_defs(tmp_path, bank_attributes(tables="{{ env.BANK_UNSET }}"))).tables is None
    with pytest.raises(SettingError, match="must be a list"):
        load_settings(write_defs(tmp_path, bank_attributes(tables="accounts")))


def test_the_request_tag_names_the_pipeline(tmp_path: Path) -> None:
    """Spanner's statistics say which pipeline made a request."""
    assert change_stream_of(load_settings(write_defs(tmp_path))).request_tag == "cdc_platform/bank"


BAD_VALUES: list[tuple[dict[str, Any], str, str]] = [
    # a required value left out
    ({"source": {"project": "p", "instance": "i", "database": "d"}}, "source.change_stream", "is missing"),
    # a misspelled key
    ({"laek": {"path": "lake"}}, "laek", "misspelled"),
    # the same for a required one: the misspelled key comes before the missing one
    (
        {"source": {"project": "p", "instance": "i", "database": "d", "change_steam": "s"}},
        "source.change_steam",
        "not known.*Did you mean `source.change_stream`.*`source.change_stream` is missing",
    ),
    ({"lake": {"pth": "lake"}}, "lake.pth", "Did you mean `lake.path`.*`lake.path` is missing"),
    # a key that is like none
    ({"source": {**bank_attributes()["source"], "zzz": 1}}, "source.zzz", r"misspelled\?$"),
    # a value where a group of settings belongs
    ({"lake": "lake"}, "lake", "group of settings: path, catalog"),
    ({"table_options": "accounts"}, "table_options", "must be a group of settings"),
    # a word where a number belongs
    ({"max_window_s": "an hour"}, "max_window_s", "must be a number"),
    # a value out of its range, found by the source's own settings
    (
        {"source": {**bank_attributes()["source"], "heartbeat_ms": 1}},
        "source.heartbeat_ms",
        "and at most",
    ),
    # the same, within a nested setting
    (
        {"source": {**bank_attributes()["source"], "deadline_s": "soon"}},
        "source.deadline_s",
        "must be a number",
    ),
    # a list that would mean everything, and a folder that would be the file's own
    ({"tables": []}, "tables", "names no table"),
    ({"lake": {"path": ""}}, "lake.path", "is empty"),
    ({"lake": {"path": " "}}, "lake.path", "is empty"),
    # numbers that are none
    ({"max_window_s": float("nan")}, "max_window_s", "finite"),
    ({"idle_interval_s": float("inf")}, "idle_interval_s", "finite"),
    ({"idle_interval_s": -1}, "idle_interval_s", "at least 0"),
    ({"local_read_s": -1}, "local_read_s", "at least 0"),
    ({"runs": {"follow_s": float("nan")}}, "runs.follow_s", "finite"),
    ({"local_merge_bytes": -1}, "local_merge_bytes", "at least 0"),
    # what Dagster itself would refuse, or take for something else
    ({"runs": {"schedule": "x y"}}, "runs.schedule", "cron expression"),
    ({"runs": {"owners": ["team:a", "not an owner"]}}, "runs.owners.1", "e-mail address.*: not an owner"),
    ({"runs": {"poll_s": -1}}, "runs.poll_s", "at least 1"),
    ({"runs": {"follow_s": -3}}, "runs.follow_s", "at least 0"),
    ({"runs": {"full_checks_every_s": -5}}, "runs.full_checks_every_s", "at least 0"),
    ({"runs": {"fresh_warn_s": 60, "fresh_fail_s": 30}}, "runs.fresh_warn_s", "`runs.fresh_fail_s`.*30"),
    # a name that cannot be a namespace
    ({"name": "My Bank"}, "name", "lower-case"),
]


@pytest.mark.parametrize(("changes", "key", "problem"), BAD_VALUES)
def test_a_bad_value_is_named(tmp_path: Path, changes: dict[str, Any], key: str, problem: str) -> None:
    """An error names the file, the key within it, and what is wrong; no error of a library hides it."""
    path = write_defs(tmp_path, bank_attributes(**changes))
    with pytest.raises(SettingError, match=problem) as caught:
        load_settings(path)
    assert f"{path}: {key}" == caught.value.setting
    assert not any("The above exception" in line for line in format_exception(caught.value))


@pytest.mark.parametrize(
    ("changes", "key", "problem"),
    [
        # where a value is required
        ({"name": "{{ env.BANK_UNSET }}"}, "name", "is empty, because.*`BANK_UNSET` is not set"),
        (
            {"source": {**bank_attributes()["source"], "project": "{{env.BANK_UNSET}}"}},
            "source.project",
            "is empty, because.*`BANK_UNSET` is not set",
        ),
        ({"tables": ["accounts", "{{ env.BANK_UNSET }}"]}, "tables.1", "`BANK_UNSET` is not set"),
        # within a text, where the word None would stand otherwise
        ({"lake": {"path": "/lakes/{{ env.BANK_UNSET }}"}}, "lake.path", "`BANK_UNSET`.*not set.*default"),
    ],
)
def test_an_unset_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], key: str, problem: str
) -> None:
    """An error names the file, the key, and the environment variable that is not set."""
    monkeypatch.delenv("BANK_UNSET", raising=False)
    path = write_defs(tmp_path, bank_attributes(**changes))
    with pytest.raises(SettingError, match=problem) as caught:
        load_settings(path)
    assert f"{path}: {key}" == caught.value.setting


def test_an_unset_variable_without_default_is_named(tmp_path: Path) -> None:
    """The function of the templates that takes a default says the same where it is given none."""
    path = write_defs(tmp_path, bank_attributes(name="{{ env('BANK_UNSET') }}"))
    with pytest.raises(SettingError, match=r"defs\.yaml.*BANK_UNSET is not set"):
        load_settings(path)
    path = write_defs(tmp_path, bank_attributes(name="{{ env('BANK_UNSET', 'spare') }}"))
    assert load_settings(path).name == "spare"


@pytest.mark.parametrize(
    "text",
    [
        "{{ cycler.__init__.__globals__.os.popen('touch SPOT').read() }}",
        "{{ env.__class__.__init__.__globals__['os'].popen('touch SPOT') }}",
        "{{ env.X }}{{- lipsum.__globals__.os.popen('touch SPOT') }}",
        "{{{ env.X }}}",
        "{% for x in [env('X')] %}{{ env.X }}{% endfor %}",
        "{{ env('X', 'a' ~ lipsum) }}",
        "{{ env.__init__ }}",
        "{{ dg.AutomationCondition.eager() }}",
        "a{# comment #}b",
        "{{",
    ],
)
@pytest.mark.parametrize("place", ["spark.driver_memory", "lake.path", "tables.0", "name", "idle_interval_s"])
def test_templates_run_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, place: str
) -> None:
    """Anything but a variable of the environment is named and refused, in every kind of setting."""
    monkeypatch.setenv("X", "x")
    spot = tmp_path / "spot"
    parts: dict[str, Any] = {"spark": {}, "lake": {"path": "lake"}, "tables": [""]}
    attributes = bank_attributes(**parts)
    group, _, key = place.partition(".")
    bad = text.replace("SPOT", str(spot))
    if key:
        attributes[group][int(key) if key.isdigit() else key] = bad
    else:
        attributes[group] = bad
    path = write_defs(tmp_path, attributes)
    with pytest.raises(SettingError, match=r"contains the template .\{.*, which is not evaluated") as caught:
        load_settings(path)
    assert f"{path}: {place}" == caught.value.setting
    assert not spot.exists()


def test_dagster_runs_no_code_of_templates_either() -> None:
    """A component that Dagster's own loader reads refuses the same templates."""
    text = yaml.safe_dump(bank_attributes(name="{{ lipsum.__globals__ }}"))
    with pytest.raises(SettingError, match="Setting `name` contains the template"):
        SpannerPipeline.resolve_from_yaml(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: " + "[" * 3000, "is nested too deeply"),
        ("a: " + "[" * 300 + "]" * 300, r"type` must be"),
        ("a: &a {b: [*a]}", r"\(line 1\)` contains itself"),
        (
            "a0: &a0 {x: 1}\n" + "".join(f"a{i + 1}: &a{i + 1} {{<<: [*a{i}, *a{i}]}}\n" for i in range(40)),
            "more than 100,000 values",
        ),
        ("a0: &a0 [x]\n" + "".join(f"a{i + 1}: &a{i + 1} [*a{i}, *a{i}]\n" for i in range(40)), "more than"),
    ],
)
def test_a_bomb_is_refused_in_a_line(tmp_path: Path, text: str, sentence: str) -> None:
    """Depth, self-reference and what grows by references end in one error that names the file."""
    path = tmp_path / "defs.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingError, match=sentence) as caught:
        load_settings(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_may_declare_several_pipelines(tmp_path: Path) -> None:
    """Each document is a pipeline of the code location; who needs a single one chooses it by its name."""
    path = write_two(tmp_path)
    assert load_settings(path, "shop").name == "shop"
    definitions = [declared.definitions() for declared in load_declared([path]).values()]
    assert [job.name for each in definitions for job in each.jobs or []] == ["bank_sync", "shop_sync"]


@pytest.mark.parametrize(
    ("second", "name", "problem"),
    [
        ("shop", None, "several pipelines; choose one with `--name`: `bank`, `shop`"),
        ("shop", "shoe", "no pipeline `shoe`, but `bank`, `shop`"),
        ("bank", "bank", r"document 2\): name` is already used by .*; choose another: bank"),
        ("My Shop", "My Shop", r"document 2\): name` must begin"),
    ],
)
def test_one_of_several_pipelines_is_chosen(
    tmp_path: Path, second: str, name: str | None, problem: str
) -> None:
    """No choice, a wrong one, and mistakes in a single document are errors that say so."""
    path = write_two(tmp_path, bank_attributes(name=second))
    with pytest.raises(SettingError, match=problem):
        load_settings(path, name)


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("type: other.Component\nattributes: {}\n", "type"),  # somebody else's component
        ("- a list\n", "type"),  # no component at all
        ("type: cdc_platform.components.spanner.SpannerPipeline\n", "attributes"),  # nothing said
        ("# nothing yet\n---\n", "type"),  # no document at all
        (f"type: {TYPE}\nattributes: {{}}\nattribs: 1\n", "attribs"),  # a word that nobody reads
    ],
)
def test_a_file_that_is_no_pipeline_is_refused(tmp_path: Path, text: str, setting: str) -> None:
    """A file that declares something else is an error of that file."""
    path = tmp_path / "defs.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingError) as caught:
        load_settings(path)
    assert f"{path}: {setting}" == caught.value.setting


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("  name: other\n", "name"),
        ("  maintenance: {keep_snapshots: 20, keep_snapshots: 30}\n", "maintenance.keep_snapshots"),
        ("  spark: {conf: {a.b: 1, a.b: 2}}\n", "spark.conf.a.b"),
    ],
)
def test_a_key_that_stands_twice_is_refused(tmp_path: Path, more: str, key: str) -> None:
    """Of two values one would be dropped without a word: the error names the key and its line."""
    path = write_defs(tmp_path)
    text = path.read_text(encoding="utf-8").replace("attributes:\n", f"attributes:\n{more}")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingError, match="occurs twice") as caught:
        load_settings(path)
    assert caught.value.setting.startswith(f"{path}: {key} (line ")


def test_an_anchor_may_be_merged_and_overridden(tmp_path: Path) -> None:
    """A value from a YAML merge key is not a second value, even if the anchor has its own merge key."""
    path = write_defs(tmp_path)
    inner = "{<<: &inner {driver_memory: 1g, master: 'local[1]'}, driver_memory: 2g}"
    shared = f"attributes:\n  spark: {{<<: &outer {inner}, driver_memory: 3g}}\n"
    text = path.read_text(encoding="utf-8").replace("attributes:\n", shared)
    path.write_text(text, encoding="utf-8")
    assert load_settings(path).spark.driver_memory == "3g"


def test_text_that_is_not_yaml_is_refused(tmp_path: Path) -> None:
    """A file that cannot be parsed is an error that names it."""
    path = tmp_path / "defs.yaml"
    path.write_text("type: [", encoding="utf-8")
    with pytest.raises(SettingError, match=r"defs\.yaml.*YAML"):
        load_settings(path)


def test_pipelines_are_found_below_a_folder(tmp_path: Path) -> None:
    """All pipelines below a folder are found, in a stable order; other components are passed over."""
    for name in ("b", "a", "other"):
        (tmp_path / name).mkdir()
    expected = (write_defs(tmp_path / "a"), write_defs(tmp_path / "b"))
    (tmp_path / "other" / "defs.yaml").write_bytes(b"type: other.Component\n\xff")
    (tmp_path / "folder" / "defs.yaml").mkdir(parents=True)
    assert expected == find_pipelines(tmp_path)
    assert (expected[0],) == find_pipelines(expected[0])


def test_a_pipeline_is_found_once(tmp_path: Path) -> None:
    """A folder that is mounted from a ConfigMap links its files twice; paths count from the named folder."""
    data = tmp_path / "..2026"
    data.mkdir()
    write_defs(data)
    (tmp_path / "..data").symlink_to(data.name)
    (tmp_path / "defs.yaml").symlink_to("..data/defs.yaml")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "defs.yaml").symlink_to("../defs.yaml")
    assert find_pipelines(tmp_path) == (tmp_path / "defs.yaml",)
    assert load_settings(tmp_path).lake.path == str(tmp_path / "lake")


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        (f"type: {TYPE}\n", True),
        (f"attributes: {{}}\ntype:   '{TYPE}'  # quoted\n", True),
        (f'{{"type": "{TYPE}", "attributes": {{}}}}', True),  # YAML may be written as JSON
        (f"type: {TYPE}\nattributes: [", True),  # loading it reports what is wrong
        (f"# type: {TYPE}\ntype: other.Component\n", False),
        (f"type: {TYPE}Of\n", True),  # what is misspelled is reported, not passed over
        ("type: cdc_platform.components.spaner.SpanerPipeline\n", True),
        ("type: cdc_platform.components_of_others.SpannerPipeline\n", False),
    ],
)
def test_pipelines_are_found_however_their_type_is_written(
    tmp_path: Path, text: str, *, is_found: bool
) -> None:
    """Quotes and mistakes hide no pipeline, and comments make none."""
    path = tmp_path / "defs.yml"
    path.write_text(text, encoding="utf-8")
    assert ((path,) if is_found else ()) == find_pipelines(tmp_path)
