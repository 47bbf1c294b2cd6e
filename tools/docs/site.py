"""What `mkdocs.yml` hooks into the build of the site: its files are those of the checkout, at the same places, so that every
relative link that works there works in the site as well."""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from tools.docs.pages import LINK, prose, slug
from tools.docs.repository import tracked

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

SETTINGS: Final = "mkdocs.yml"
# Pages of nobody but the tests and the data that they explain; they are read where they lie.
ELSEWHERE: Final = re.compile(r"tests/|.*/data/")
ASSETS: Final = "tools/docs/assets/*"
# A list that begins in the line after a paragraph: code forges see it, Python-Markdown wants an empty line between.
LIST_AFTER_TEXT: Final = re.compile(r"^((?![-*#|>< ]|\d+\. |```)\S.*\n)(?=(?:[-*]|1\.) )", re.MULTILINE)


def on_config(config: "MkDocsConfig") -> None:
    """Anchors as code forges make them."""
    config.mdx_configs["toc"]["slugify"] = lambda heading, _: slug(heading)


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """The theme's own files, the pages of the checkout, and every file that a page links to."""
    from mkdocs.structure.files import File, Files

    root = Path(config.config_file_path).parent

    def file(path: str) -> File:
        return File.generated(config, path, abs_src_path=str(root / path))

    theme = [one for one in files if one.src_dir != config.docs_dir]
    return Files([*theme, *map(file, site_files(root))])


def site_files(root: Path) -> list[str]:
    """Paths of all pages, of what they link to (but folders), and of our additions to the theme."""
    pages = site_pages(root)
    return sorted({*pages, *tracked(root, ASSETS), *(path for page in pages for path in _linked(root, page))})


def nav_problems(root: Path) -> list[str]:
    """Pages that `nav` of mkdocs.yml does not have, and entries of it that are no pages."""
    settings = yaml.safe_load((root / SETTINGS).read_text())
    named, pages = list(_entries(settings["nav"])), site_pages(root)
    hidden = [pattern.lstrip("/") for pattern in settings["not_in_nav"].split()]
    left = [page for page in pages if page not in named and not any(fnmatch(page, pattern) for pattern in hidden)]
    missing = [f"{SETTINGS}: {page} is not in nav; add a line below the fitting heading" for page in left]
    missing += [f"{SETTINGS}: nav names {name}, which is no page" for name in named if name not in pages]
    return missing + [f"{SETTINGS}: nav names {name} twice" for name in sorted(set(named)) if named.count(name) > 1]


def _entries(nav: Any) -> Iterator[str]:
    for entry in nav:
        for inner in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [inner] if isinstance(inner, str) else _entries(inner)


def site_pages(root: Path) -> list[str]:
    """Paths of the pages."""
    return [page for page in tracked(root, "*.md") if not ELSEWHERE.match(page)]


def _linked(root: Path, page: str) -> list[str]:
    targets = [link["target"].partition("#")[0] for link in LINK.finditer("\n".join(prose((root / page).read_text())))]
    paths = [(root / page).parent.joinpath(target).resolve() for target in targets if target and "://" not in target]
    return [str(path.relative_to(root)) for path in paths if path.is_file()]


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", **_: object) -> str:
    """Links to folders, which are no files of the site, become plain text; lists begin where they do on forges."""
    folder = Path(config.config_file_path).parent / Path(page.file.src_uri).parent
    markdown = LIST_AFTER_TEXT.sub(r"\1\n", markdown)
    return LINK.sub(lambda link: link["text"] if (folder / link["target"]).is_dir() else link[0], markdown)
