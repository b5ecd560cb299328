"""Files of pipelines with something wrong in them: other words, tags, depth, and other octets."""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hypothesis import strategies as st

from cdc_platform.components.loading import find_pipelines, load_each
from cdc_platform.errors import SettingError
from cdc_platform_tests.fuzzing.mutations import RAW, TEXTS, bent

_EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "bank" / "defs.yaml"
_OTHERS: Final = (
    """\
type: cdc_platform.components.datastream.DatastreamPipeline
requirements: {env: [HOME]}
attributes:
  name: shop
  source: {path: files, keys: {public.orders: [id]}, max_files: 10, epochs: ["2026-01-01T00:00:00Z"]}
  lake: {path: "lake", catalog: {type: rest, uri: "http://c", token: "{{ env.HOME }}"}}
  tables: [public.orders]
  table_options: {public.orders: {history: true, soft_delete: false}}
post_processing: {assets: [{target: "*", attributes: {description: a text}}]}
""",
    """\
type: cdc_platform.components.debezium.DebeziumPipeline
attributes:
  name: shop
  source:
    input: {kafka: {bootstrap_servers: "b:9092", topics_pattern: "s[.].*", start_offsets: {s/0: 5}}}
    columns: {public.orders: {id: bigint}}
  lake: {path: lake}
  spark: &spark {conf: {a.b: c}, packages: []}
  runs: {sensor: false, follow_s: 1.5, owners: ["team:data"]}
---
type: cdc_platform.components.debezium.DebeziumPipeline
attributes: {name: second, source: {input: {files: {path: events}}}, lake: {path: lake}, spark: *spark}
""",
)
_WORD: Final = re.compile(r"[\w./:-]+|\S")
_WRONG: Final = (
    *("!!int foo", '!!float ""', "!!bool zzz", "!!timestamp foo", "!!binary aGk=", "!!set {a}", "!!str [a]"),
    *("!!python/name:os.system", "!own x", "2001-99-99", "2026-01-01", "0x" + "f" * 5000, "0o8", "1_0:59"),
    *("9" * 5000 + ":59", ".inf", "-.nan", ".", "=", "<<", "? [a]", "? {a: 1}", "~", "yes", "null", "1: 2"),
    *(
        "&a [*a]",
        "*a",
        "&spark",
        "<<: *spark",
        "<<: [*spark, 1]",
        "|",
        ">",
        "'",
        '"',
        "\t",
        "---",
        "...",
        "%",
    ),
    *("[" * 400, "{a: " * 400, "- " * 400, "[[]]", "{}", "[]", "[{}]", "{a: {b: [c]}}"),
    *("{{ env.HOME }}", "'{{ env.UNSET }}'", "'{{ lipsum }}'", '\'{{ env("X", "{") }}\'', "'{% if %}'", "{{"),
)


def _spoiled(text: str, steps: Sequence[tuple[float, str, bool]]) -> bytes:
    for at, wrong, is_more in steps:
        words = list(_WORD.finditer(text))
        if words:
            word = words[int(at * (len(words) - 1))]
            before, after = text[: word.start()], text[word.start() if is_more else word.end() :]
            text = f"{before}{wrong}{' ' if is_more else ''}{after}"
    return text.encode(errors="surrogatepass")


def document_inputs() -> st.SearchStrategy[bytes]:
    """Return files that were valid before some of their words were replaced, or others put before them."""
    seeds = st.sampled_from([_EXAMPLE.read_text(encoding="utf-8"), *_OTHERS])
    wrong = st.sampled_from([*_WRONG, *TEXTS, *RAW]) | st.text(max_size=6)
    steps = st.lists(st.tuples(st.floats(0, 1), wrong, st.booleans()), min_size=1, max_size=3)
    return st.builds(_spoiled, seeds, steps) | bent(seeds.map(str.encode))


def check_documents(data: bytes) -> None:
    """Check that a file gives settings, or the one error of settings, which names the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "defs.yaml"
        path.write_bytes(data)
        find_pipelines(path.parent)
        refused = _refused(path)
    assert refused is None or (str(path) in refused.setting and refused.problem)


def _refused(path: Path) -> SettingError | None:
    try:
        load_each(path)
    except SettingError as error:
        return error
    return None
