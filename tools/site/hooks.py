"""The parts of the site that are not in docs/: notebooks, files that pages link to, and formulas as MathML.

MkDocs calls the functions `on_...` by their names. Formulas become MathML while the site is built: browsers show it
without any JavaScript, and screen readers read it.
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

import notebooks
from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "README.md": "index.md"}
"""Pages beside docs/ that are part of the site, and what takes the README's place there."""
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?(\))")
MATH = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)
NOT_SEARCHED = ("results/", "sources/", "changelog.md", "contributing.md")
"""Pages that the search leaves out: their numbers and names would bury the guides."""
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".js": "javascript", ".patch": "diff", ".sh": "sh"}
PICTURE = re.compile(r'<p>(<img [^>]*src="[^"]*\.svg"[^>]*>)</p>')
LONG = 40
"""Signs of a formula inside of a line that may be wider than a phone."""
_origins: dict[str, str] = {}
"""Where a made page comes from: its place on the site, and in the repository."""


def place(origin: str, link: str) -> str | None:
    """The page of the site that a link leads to, seen from a file of the repository; None if it leads nowhere."""
    target = os.path.normpath(PurePosixPath(origin).parent / link)
    if target.startswith("..") or not (ROOT / target).exists():
        return None
    if target in ROOT_PAGES:
        return ROOT_PAGES[target]
    inside = PurePosixPath(target)
    if inside.parts[0] == "docs":
        return str(PurePosixPath(*inside.parts[1:]))
    return f"sources/{target}.md"


def relinked(text: str, origin: str, own: str) -> str:
    """Markdown whose links lead to pages of the site; `own` is the page's place there."""

    def replace(match: re.Match[str]) -> str:
        before, link, anchor, after = match.groups()
        target = None if "://" in link or link.startswith("mailto:") else place(origin, link)
        if target is None:
            return match[0]
        return f"{before}{os.path.relpath(target, PurePosixPath(own).parent)}{anchor or ''}{after}"

    return LINK.sub(replace, text)


def linked_files(texts: dict[str, str]) -> set[str]:
    """Files and folders of the repository, outside of docs/, that pages link to."""
    found = set()
    for origin, text in texts.items():
        for _, link, _, _ in LINK.findall(text):
            target = None if "://" in link else place(origin, link)
            if target and target.startswith("sources/"):
                found.add(target.removeprefix("sources/").removesuffix(".md"))
    return found


def source_page(path: str) -> str:
    """A page that shows a file, or all files of a folder."""
    whole = ROOT / path
    files = [whole] if whole.is_file() else sorted(file for file in whole.rglob("*") if file.is_file())
    parts = [f"# {path}\n"]
    for file in files:
        if "__pycache__" in file.parts:
            continue
        name = file.relative_to(ROOT)
        fence = "`" * 5
        parts += [] if whole.is_file() else [f"## {name}\n"]
        parts.append(f"{fence}{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text(encoding='utf-8')}\n{fence}\n")
    return "\n".join(parts)


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages: notebooks, and files that pages link to."""
    texts = {f"docs/{file.src_uri}": file.content_string for file in files if file.src_uri.endswith(".md")}
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        texts[name] = made(files, config, ROOT_PAGES[name], (ROOT / name).read_text(encoding="utf-8"), name)
    books = [file for file in files if file.src_uri.endswith(".ipynb")]
    execute = os.environ.get("FEDMERIT_EXECUTE", "1") != "0"
    for file, text in zip(books, notebooks.pages([Path(file.abs_src_path) for file in books], execute), strict=True):
        files.remove(file)
        texts[f"docs/{file.src_uri}"] = made(files, config, file.src_uri, text, f"docs/{file.src_uri}")
    for path in sorted(linked_files(texts)):
        made(files, config, f"sources/{path}.md", source_page(path))
    return files


def made(files: Files, config: Any, page: str, text: str, origin: str | None = None) -> str:
    """Add a page that is made of a text; a notebook's page takes the notebook's place."""
    if origin:
        _origins[page] = origin
    file = File.generated(config, page, content=text)
    if page.endswith(".ipynb"):
        file = _NotebookPage(file, config)
    files.append(file)
    return text


def _NotebookPage(file: File, config: Any) -> File:  # noqa: N802
    """A notebook as a page: MkDocs knows pages by their ending."""
    file.is_documentation_page = lambda: True  # type: ignore[method-assign]
    file.dest_uri = str(PurePosixPath(file.src_uri).with_suffix(".html"))
    return file


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let links lead to pages of the site; leave results and sources out of the search."""
    own = page.file.src_uri
    if own.startswith(NOT_SEARCHED):
        page.meta["search"] = {"exclude": True}
    if own.startswith("sources/"):
        return markdown
    return relinked(markdown, _origins.get(own, f"docs/{own}"), own)


def mathml(match: re.Match[str]) -> str:
    """A formula as MathML; one that may be wider than the screen scrolls by itself."""
    kind = "inline" if match[1] == "span" else "block"
    text = html.unescape(match[2]).strip()
    made = convert(text, display=kind)
    if kind == "inline" and len(text) < LONG:
        return made
    return f'<{match[1]} class="formula" tabindex="0">{made}</{match[1]}>'


def on_page_content(content: str, page: Any, config: Any, files: Files) -> str:
    """Typeset formulas; let diagrams scroll on phones."""
    return PICTURE.sub(r'<div class="picture" tabindex="0">\1</div>', MATH.sub(mathml, content))


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Give the theme's search dialog a name, which screen readers say."""
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )
