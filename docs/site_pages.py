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
_PARTS: Final = re.compile(
    r"^```.*?^```|\[(?P<text>[^\[\]\n]*)\]\((?P<target>[^()\s]+)\)|`[^`\n]*`", re.MULTILINE | re.DOTALL
)
"""Code, which stays as it is, and links."""
_ELSEWHERE: Final = re.compile(r"\w+:|#")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the navigation of the kinds of pages that the first page lists."""
    navigation: list[dict[str, Any]] = [{"Home": FIRST}]
    for line in Path(config.docs_dir, FIRST).read_text(encoding="utf-8").splitlines():
        if kind := _KIND.match(line):
            navigation.append({kind[1]: []})
        elif entry := _ENTRY.match(line):
            next(iter(navigation[-1].values())).append(_with_pages_below(config, entry[1], entry[2]))
    config.nav = navigation
    return config


def _with_pages_below(config: MkDocsConfig, title: str, path: str) -> dict[str, Any]:
    """Return the entry of a page, with the pages of the folder that has its name.

    The theme shows them all, so such a page is the last of its kind.
    """
    place = Path(config.docs_dir, path)
    below = sorted(place.with_suffix("").glob("*.md")) if path == place.name else []
    pages = [{page.stem: page.relative_to(config.docs_dir).as_posix()} for page in below]
    return {title: [{f"All {title.lower()}": path}, *pages] if pages else _in_site(path)}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/ that the navigation names."""
    root = Path(config.docs_dir).parent
    for group in (config.nav or [])[1:]:
        for entry in next(iter(group.values())):
            (source,) = entry.values()
            if isinstance(source, str) and source.startswith(f"{OUTSIDE}/"):
                place = root / source.removeprefix(f"{OUTSIDE}/")
                files.append(File.generated(config, source, abs_src_path=str(place)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point the links of a page to where the site has their targets.

    A file of the repository that is not a page leaves the text of its link.
    """
    here = page.file.src_uri
    inside = here.removeprefix(f"{OUTSIDE}/")
    folder = posixpath.dirname(inside if inside != here else f"docs/{here}")

    def link(part: re.Match[str]) -> str:
        target, hash_sign, anchor = (part["target"] or "#").partition("#")
        if _ELSEWHERE.match(part["target"] or "#"):
            return part[0]
        path = posixpath.relpath(posixpath.join(folder, target), "docs")
        if files.get_file_from_path(_in_site(path)) is None and Path(config.docs_dir, path).exists():
            return part["text"]
        place = posixpath.relpath(_in_site(path), posixpath.dirname(here))
        return f"[{part['text']}]({place}{hash_sign}{anchor})"

    return _PARTS.sub(link, markdown)


def _in_site(path: str) -> str:
    """Return the place in the site of a page that is named from docs/."""
    return f"{OUTSIDE}/{path.removeprefix('../')}" if path.startswith("../") else path
