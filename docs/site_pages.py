"""Pages of the site that lie outside docs/, and its navigation, which docs/README.md lists."""

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

FIRST: Final = "README.md"
OUTSIDE: Final = "repository"
"""Folder of the site with the pages that the repository has outside docs/."""

_KIND: Final = re.compile(r"^## (.+)$")
_ENTRY: Final = re.compile(r"^- \[([^\]]+)\]\(([^)]+\.md)\)")
_LINK: Final = re.compile(r"(?<=\]\()(?!\w+:|#)([^()\s#]+)")
_CODE: Final = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the navigation of the kinds of pages that the first page lists."""
    navigation: list[dict[str, Any]] = [{"Home": FIRST}]
    for line in Path(config.docs_dir, FIRST).read_text(encoding="utf-8").splitlines():
        if kind := _KIND.match(line):
            navigation.append({kind[1]: []})
        elif entry := _ENTRY.match(line):
            next(iter(navigation[-1].values())).append({entry[1]: _in_site(entry[2])})
    config.nav = navigation
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/ that the navigation names."""
    root = Path(config.docs_dir).parent
    for group in (config.nav or [])[1:]:
        for entry in next(iter(group.values())):
            (source,) = entry.values()
            if source.startswith(f"{OUTSIDE}/"):
                place = root / source.removeprefix(f"{OUTSIDE}/")
                files.append(File.generated(config, source, abs_src_path=str(place)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point the links of a page to where the site has their targets."""
    here = page.file.src_uri
    inside = here.removeprefix(f"{OUTSIDE}/")
    place = inside if inside != here else f"docs/{here}"
    parts = _CODE.split(markdown)
    parts[::2] = [_LINK.sub(lambda link: _link(link[1], place, here), part) for part in parts[::2]]
    return "".join(parts)


def _link(target: str, place: str, here: str) -> str:
    """Return a link of a page to another.

    Args:
        target: the link as the repository has it.
        place: the page in the repository.
        here: the page in the site.
    """
    path = posixpath.relpath(posixpath.join(posixpath.dirname(place), target), "docs")
    return posixpath.relpath(_in_site(path), posixpath.dirname(here))


def _in_site(path: str) -> str:
    """Return the place in the site of a page that is named from docs/."""
    return f"{OUTSIDE}/{path.removeprefix('../')}" if path.startswith("../") else path
