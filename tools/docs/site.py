"""What `mkdocs.yml` hooks into the build of the site: its files are those of the checkout, at the same places, so that every
relative link that works there works in the site as well."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.docs.pages import LINK, prose, slug
from tools.docs.repository import tracked

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

# Pages of nobody but the tests and the data that they explain; they are read where they lie.
ELSEWHERE: Final = re.compile(r"tests/|.*/data/")
ASSETS: Final = "tools/docs/assets/*"
# A list that begins in the line after a paragraph: code forges see it, Python-Markdown wants an empty line between.
_LIST_AFTER_TEXT: Final = re.compile(r"^((?![-*#|>< ]|\d+\. |```)\S.*\n)(?=(?:[-*]|1\.) )", re.MULTILINE)


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
    markdown = _LIST_AFTER_TEXT.sub(r"\1\n", markdown)
    return LINK.sub(lambda link: link["text"] if (folder / link["target"]).is_dir() else link[0], markdown)
