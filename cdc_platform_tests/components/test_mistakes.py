"""A wrong value is described in words of the file, never in those of the library that validates it."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from pydantic import BaseModel

from cdc_platform.components.datastream import DatastreamPipeline
from cdc_platform.components.debezium import DebeziumPipeline
from cdc_platform.components.loading import load_settings
from cdc_platform.components.pipeline import PipelineComponent
from cdc_platform.components.spanner import SpannerPipeline
from cdc_platform.errors import SettingError
from cdc_platform_tests.yaml_files import TYPE, bank_attributes, write_defs

WRONG: Final = ("a word", 1.5, True, [1], [["a"]], {"a": {"b": 1}}, float("nan"), None)
"""Each is wrong for most settings."""
FOREIGN: Final = ("Input should", "valid ", "unable to", "is not right", "pydantic", "of another type")
"""Words of pydantic, and of a kind of error that has no words yet."""


def error_of(tmp_path: Path, attributes: dict[str, Any], type_name: str = TYPE) -> SettingError | None:
    """Return the error of a pipeline's file, None where it is right."""
    try:
        load_settings(write_defs(tmp_path, attributes, type_name))
    except SettingError as error:
        return error
    return None


def problem_of(tmp_path: Path, changes: dict[str, Any]) -> str | None:
    """Return what is said of a pipeline's file, None where it is right."""
    error = error_of(tmp_path, bank_attributes(**changes))
    return None if error is None else error.problem


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"max_window_s": "an hour"}, 'must be a number, such as 3600.0, and not "an hour"'),
        ({"tables": "accounts"}, 'must be a list, such as [accounts, transfers], and not "accounts"'),
        ({"tables": [["a"]]}, "must be a text, such as accounts, and not a list"),
        ({"max_window_s": float("nan")}, "must be a finite number, but is: nan"),
        ({"runs": {"follow_s": False}}, "must be a number, such as 600.0, and not false"),
        ({"copy_chunk_rows": True}, "must be a whole number, such as 25000, and not true"),
        ({"max_window_s": [1]}, "must be a number, such as 3600.0, and not a list"),
        ({"max_window_s": True}, "must be a number, such as 3600.0, and not true"),
        ({"maintenance": {"keep_snapshots": False}}, "must be a whole number, such as 50, and not false"),
        ({"spark": {"class_archive": "maybe"}}, 'must be true or false, such as true, and not "maybe"'),
    ],
)
def test_says_what_was_expected_and_found(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    """The message has the kind of value, an example (the default, if there is one), and the wrong value."""
    assert expected == problem_of(tmp_path, changes)


def test_further_mistakes_are_a_sentence_of_their_own(tmp_path: Path) -> None:
    """They follow a full stop, or the question mark of the first mistake; a misspelled one has a guess."""
    assert problem_of(tmp_path, {"source": {"project": "p", "instance": "i"}}) == (
        "is missing. `source.change_stream` is missing."
    )
    assert problem_of(tmp_path, {"tabels": [], "maintenence": {}}) == (
        "is not known; is it misspelled? Did you mean `maintenance`? "
        "`tabels` is not known; is it misspelled? Did you mean `tables`?"
    )


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("type: cdc_platform.components.spanner.SpanerPipeline", "spanner.SpannerPipeline`?"),
        ("type: my_own.Thing", ", and not my_own.Thing."),
        ("kind: spanner", ", and it is missing."),
    ],
)
def test_another_type_is_shown(tmp_path: Path, line: str, end: str) -> None:
    """A misspelled type has a guess; a file without one says so."""
    (tmp_path / "defs.yaml").write_text(f"{line}\nattributes: {{}}\n", encoding="utf-8")
    with pytest.raises(SettingError) as caught:
        load_settings(tmp_path / "defs.yaml")
    assert caught.value.problem.startswith("must be cdc_platform.components.spanner.SpannerPipeline or ")
    assert caught.value.problem.endswith(end)


def test_value_of_the_environment_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The value of a variable may be a secret, so the message only names the variable."""
    monkeypatch.setenv("BANK_WINDOW", "s3cret")
    expected = "must be a number, such as 3600.0, and not the value of `BANK_WINDOW`"
    assert expected == problem_of(tmp_path, {"max_window_s": "{{ env.BANK_WINDOW }}"})


def test_secret_is_not_shown(tmp_path: Path) -> None:
    """A password that is not written as a text stays out of the message, and so out of logs."""
    catalog = {"type": "sql", "uri": "postgresql+psycopg2://db/lake", "password": ["s3cret"]}
    problem = problem_of(tmp_path, {"lake": {"path": "gs://b/l", "catalog": catalog}})
    assert problem is not None
    assert "s3cret" not in problem


def settings_of(component: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """Yield the keys of all settings, and of those within groups."""
    for name, field in component.model_fields.items():
        yield (name,)
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from ((name, *below) for below in settings_of(kind))


@pytest.mark.parametrize("names", list(settings_of(SpannerPipeline.group())), ids=".".join)
def test_no_message_has_words_of_the_validator(tmp_path: Path, names: tuple[str, ...]) -> None:
    """For any mistake in a setting, the message contains none of pydantic's words."""
    for value in WRONG:
        changes: dict[str, Any] = {names[0]: value}
        if len(names) > 1:
            *_, last = names
            changes = {names[0]: {**bank_attributes().get(names[0], {}), last: value}}
        problem = problem_of(tmp_path, changes)
        assert problem is None or not any(word in problem for word in FOREIGN), (value, problem)


EVENTS: Final[list[tuple[type[PipelineComponent], dict[str, Any]]]] = [
    (DatastreamPipeline, {"path": "files"}),
    (DebeziumPipeline, {"input": {"files": {"path": "files"}}}),
    (DebeziumPipeline, {"input": {"kafka": {"bootstrap_servers": "b:1", "topics_pattern": ".*"}}}),
    (DebeziumPipeline, {"input": {"engine": {"host": "h", "database": "d", "user": "u", "spool": "s"}}}),
]


@pytest.mark.parametrize(("component", "source"), EVENTS)
def test_a_mistake_in_a_source_is_named(
    tmp_path: Path, component: type[PipelineComponent], source: dict[str, Any]
) -> None:
    """Any wrong value of any setting of a source of events is reported by its place, or taken."""
    for names in settings_of(component.group()):
        place, *inner = names
        if place != "source" or not inner or not _is_there(source, inner):
            continue
        for value in WRONG:
            wrong = deepcopy(source)
            group = wrong
            for name in inner[:-1]:
                group = group.setdefault(name, {})
            group[inner[-1]] = value
            attributes = {"name": "shop", "source": wrong, "lake": {"path": "lake"}}
            error = error_of(tmp_path, attributes, f"{component.__module__}.{component.__name__}")
            if error is not None:
                assert ".".join(names[:-1]) in error.setting
                assert not any(word in error.problem for word in FOREIGN), (names, value, error.problem)


def _is_there(source: dict[str, Any], names: list[str]) -> bool:
    """Return whether a setting is of the groups that a source has, or of one that may be added."""
    return names[0] != "input" or names[1:2] == [] or names[1] in source["input"]
