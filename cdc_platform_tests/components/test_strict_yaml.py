"""Every text that is not a plain YAML is one error, with its file, its line and its setting."""

from pathlib import Path
from time import process_time

import pytest

from cdc_platform.components.loading import load_settings
from cdc_platform.components.strict_yaml import parse
from cdc_platform.errors import SettingError
from cdc_platform_tests.yaml_files import TYPE, bank_attributes, change_stream_of, write_defs

NINES = "9" * 5000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (NINES, "YAML's type `int`"),
        (f"{NINES}:59", "YAML's type `int`"),
        ("0x" + "f" * 5000, "more than 64 bits"),
        ("9223372036854775808", "more than 64 bits"),
        ("!!int foo", "YAML's type `int`"),
        ('!!float ""', "YAML's type `float`"),
        ('!!int ""', "YAML's type `int`"),
        ("!!bool zzz", "YAML's type `bool`"),
        ("!!timestamp foo", "tag `!!timestamp`"),
        ("!!timestamp 2001-99-99", "tag `!!timestamp`"),
        ("!!binary aGVsbG8=", "tag `!!binary`"),
        ("!!set {a, b}", "tag `!!set`"),
        ("!!omap [a: 1]", "tag `!!omap`"),
        ("!!str [a]", "tag `!!str`"),
        ("!!python/object:os.system {}", "tag `tag:yaml.org,2002:python|tag `!!python"),
        ("!own {}", "tag `!own`"),
        ("=", "tag `!!value`"),
        (r'"a\0b"', "NUL character"),
    ],
)
def test_a_value_that_is_none_is_named(tmp_path: Path, value: str, text: str) -> None:
    """The error names the file, the setting, its line and the type that the value should have."""
    path = tmp_path / "defs.yaml"
    path.write_text(f"type: {TYPE}\nattributes:\n  spark:\n    driver_memory: {value}\n", encoding="utf-8")
    with pytest.raises(SettingError, match=text) as caught:
        load_settings(path)
    assert caught.value.setting == f"{path}: spark.driver_memory (line 4)"
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("1: 2\nzz: 3\n", "1 (line 1)"),
        ("attributes:\n  table_options: {a: {1: true}}\n", "table_options.a.1 (line 2)"),
        ("attributes:\n  yes: 1\n", "yes (line 2)"),
        ("? [a]\n: 1\n", "? (line 1)"),
        ("? {a: 1}\n: 1\n", "? (line 1)"),
        ("null: 1\n", "null (line 1)"),
    ],
)
def test_a_key_that_is_no_text_is_named(tmp_path: Path, text: str, setting: str) -> None:
    """A number or a boolean as a key, which would be sorted or compared with texts, is one error."""
    path = tmp_path / "defs.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingError, match="put quotes around it") as caught:
        load_settings(path)
    assert caught.value.setting == f"{path}: {setting}"


def test_a_key_with_a_nul_character_is_named(tmp_path: Path) -> None:
    """Names of tables and columns are keys."""
    path = tmp_path / "defs.yaml"
    path.write_text('attributes:\n  table_options: {"a\\0b": {}}\n', encoding="utf-8")
    with pytest.raises(SettingError, match="NUL character") as caught:
        load_settings(path)
    assert caught.value.setting == f"{path}: table_options (line 2)"


@pytest.mark.parametrize("kind", ["[a]", "{a: 1}", "1", "null", "[[[a]]]"])
def test_a_type_that_is_no_text_is_named(tmp_path: Path, kind: str) -> None:
    """Lists and groups in place of the component's name do not name a component."""
    path = tmp_path / "defs.yaml"
    path.write_text(f"type: {kind}\nattributes: {{}}\n", encoding="utf-8")
    with pytest.raises(SettingError) as caught:
        load_settings(path)
    assert caught.value.setting == f"{path}: type"


def test_a_date_without_quotes_is_a_text(tmp_path: Path) -> None:
    """Both ways of loading take a moment as it is written, and say of an impossible one what is wrong."""
    source = {**bank_attributes()["source"], "start_timestamp": "START"}
    path = write_defs(tmp_path, bank_attributes(source=source))
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("START", "2026-01-31T08:00:00Z"), encoding="utf-8")
    assert change_stream_of(load_settings(path)).start_timestamp == "2026-01-31T08:00:00Z"
    path.write_text(text.replace("START", "2001-99-99"), encoding="utf-8")
    with pytest.raises(SettingError, match="2001-99-99") as caught:
        load_settings(path)
    assert caught.value.setting == f"{path}: source.start_timestamp"


@pytest.mark.parametrize(
    "text", ["a: [", "a: b: c", "a: \0", "%YAML 9.9\n---\na: 1\n", "a: *b", "&a a: {<<: 1}"]
)
def test_text_that_is_not_yaml_is_one_line(tmp_path: Path, text: str) -> None:
    """The parser's message is part of one line."""
    path = tmp_path / "defs.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingError, match="is not YAML: ") as caught:
        parse(path)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "variable", [NINES, "0x" + "f" * 5000, "-" * 5000 + "1", "[" * 5000, "1e999", "{1: 2}"]
)
@pytest.mark.parametrize(
    "setting", ["read_tasks", "idle_interval_s", "tables", "spark", "table_options", "name"]
)
def test_a_variable_of_no_use_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, setting: str
) -> None:
    """Values from templates are checked like values in the file."""
    monkeypatch.setenv("BANK_VALUE", variable)
    path = write_defs(tmp_path, bank_attributes(**{setting: "{{ env.BANK_VALUE }}"}))
    with pytest.raises(SettingError) as caught:
        load_settings(path)
    assert caught.value.setting.startswith(str(path))


@pytest.mark.parametrize("scalar", ["1" + ":1" * 200_000, "1" + ":1" * 200_000 + ".5", "1" * 400_000])
def test_a_long_number_takes_no_time(tmp_path: Path, scalar: str) -> None:
    """PyYAML reads numbers in base 60, in the square of their length."""
    file = tmp_path / "defs.yaml"
    file.write_text(f"a: {scalar}\n", encoding="utf-8")
    started_s = process_time()
    with pytest.raises(SettingError):
        parse(file)
    assert process_time() - started_s < 5
