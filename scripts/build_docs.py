"""Build the documentation as a site: `make docs`, or `python scripts/build_docs.py [FOLDER]`.

Every page of `docs/`, and the pages and examples beside it, become HTML files with relative links: open
`site/index.html`, or put the folder behind any web server. The list on the left is that of `docs/README.md`. A link
that leads nowhere, a heading that does not exist, or a page that nobody lists, ends the build with exit code 1 and all
of them named. The pages load nothing from elsewhere.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import sys
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "docs" / "README.md"
BESIDE = ("README.md", "CONTRIBUTING.md", "DESIGN.md", "CHANGELOG.md")
STYLE = Path(__file__).with_name("docs.css")
ELSEWHERE = ("http://", "https://", "mailto:")


class BrokenDocs(Exception):
    """What is wrong, one line each."""


@dataclass
class Page:
    """One file of the sources, and what becomes of it."""

    source: Path
    tokens: list[Token]
    title: str
    anchors: set[str]

    @property
    def target(self) -> Path:
        """Where it lies in the site: docs/ is the site's root, what is beside it keeps its name."""
        if self.source == HOME:
            return Path("index.html")
        within = self.source.relative_to(ROOT)
        parts = within.parts[1:] if within.parts[0] == "docs" else within.parts
        if parts == ("README.md",):
            parts = ("first-use.md",)
        return Path(*parts).with_suffix(".html" if self.source.suffix == ".md" else ".py.html")


@dataclass
class Site:
    """All pages by their source, and what was found wrong."""

    pages: dict[Path, Page]
    problems: list[str] = field(default_factory=list)
    files: set[Path] = field(default_factory=set)
    """Pictures and the like that pages show."""


def build(folder: Path) -> int:
    """Write the site, and return how many pages it has."""
    sources = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in BESIDE), *(ROOT / "examples").glob("*.*")]
    site = Site({source: read(source) for source in sorted(sources) if source.suffix in (".md", ".py")})
    menu = sections(site)
    written = {page.target: whole(page, body(site, page), menu) for page in site.pages.values()}
    listed = {source for _, links in menu for source, _ in links}
    in_docs = {source for source in site.pages if source.parent in (HOME.parent, HOME.parent / "how-to")} - {HOME}
    site.problems += [f"{shown(source)} is not listed in {shown(HOME)}" for source in sorted(in_docs - listed)]
    if site.problems:
        raise BrokenDocs("\n".join(site.problems))
    shutil.rmtree(folder, ignore_errors=True)
    for target, text in written.items():
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        (folder / target).write_text(text, encoding="utf-8")
    for file in site.files:
        there = folder / file.relative_to(ROOT / "docs")
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, there)
    colours = [colours_of("default"), f"@media (prefers-color-scheme: dark) {{\n{colours_of('github-dark')}\n}}"]
    (folder / "style.css").write_text("\n".join([STYLE.read_text(encoding="utf-8"), *colours]), encoding="utf-8")
    return len(written)


def read(source: Path) -> Page:
    """Parse a page; a program is a page with one code block."""
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".py":
        text = f"# {source.name}\n\n```python\n{text}```\n"
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    anchors = set()
    title = source.name
    for token, inside in pairwise(tokens):
        if token.type == "heading_open":
            anchor = slug(plain(inside))
            token.attrSet("id", anchor)
            anchors.add(anchor)
            title = plain(inside) if token.tag == "h1" else title
    return Page(source, tokens, title, anchors)


def plain(inline: Token) -> str:
    """The text of a heading, without its marks."""
    return "".join(child.content for child in inline.children or () if child.type in ("text", "code_inline"))


def slug(heading: str) -> str:
    """The name of a heading in an address, as the places where people read Markdown make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def sections(site: Site) -> list[tuple[str, list[tuple[Path, str]]]]:
    """The menu: the headings of the home page, and the pages that each of their lists begins its items with."""
    found: list[tuple[str, list[tuple[Path, str]]]] = [("", [(HOME, "Home")])]
    home = site.pages[HOME]
    for before, token in pairwise(home.tokens):
        if before.type == "heading_open" and before.tag == "h2":
            found.append((plain(token), []))
        elif token.type == "inline" and len(found) > 1:
            for link, words in pairwise(token.children or ()):
                if link.type == "link_open":
                    found[-1][1].append(((HOME.parent / str(link.attrs["href"])).resolve(), words.content))
                    break
    return found


def body(site: Site, page: Page) -> str:
    """The page as HTML, with its links led to where they lie in the site."""
    renderer = MarkdownIt("commonmark").enable("table")
    renderer.options["highlight"] = coloured
    for token in page.tokens:
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("href", led(site, page, str(child.attrs["href"])))
            elif child.type == "image":
                child.attrSet("src", pictured(site, page, str(child.attrs["src"])))
    rendered = str(renderer.renderer.render(page.tokens, renderer.options, {}))
    return rendered.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")


def led(site: Site, page: Page, href: str) -> str:
    """Where a link leads in the site; what leads nowhere is noted."""
    if href.startswith(ELSEWHERE):
        return href
    path, _, anchor = href.partition("#")
    source = (page.source.parent / path).resolve() if path else page.source
    if source.is_dir() and (source / "README.md") in site.pages:
        source /= "README.md"
    there = site.pages.get(source)
    if there is None:
        site.problems.append(f"{shown(page.source)}: {href} leads to no page")
        return href
    if anchor and anchor not in there.anchors:
        site.problems.append(f"{shown(page.source)}: {href} names a heading that is not there")
    return relative(page, there.target) + (f"#{anchor}" if anchor else "")


def pictured(site: Site, page: Page, src: str) -> str:
    """Where a picture lies in the site."""
    file = (page.source.parent / src).resolve()
    if not file.is_file() or not file.is_relative_to(ROOT / "docs"):
        site.problems.append(f"{shown(page.source)}: the picture {src} is not in docs/")
        return src
    site.files.add(file)
    return relative(page, file.relative_to(ROOT / "docs"))


def relative(page: Page, target: Path) -> str:
    """The way from a page to a file of the site."""
    return Path(os.path.relpath(target, page.target.parent)).as_posix()


def coloured(code: str, language: str, _more: str) -> str:
    """A code block in colours; one in no known language stays as it is."""
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return ""
    return f'<pre class="code"><code>{highlight(code, lexer, HtmlFormatter(nowrap=True))}</code></pre>'


@cache
def colours_of(style: str) -> str:
    """The rules for the colours of code."""
    return str(HtmlFormatter(style=style).get_style_defs(".code"))


def whole(page: Page, inside: str, menu: list[tuple[str, list[tuple[Path, str]]]]) -> str:
    """The page with its head and the menu."""
    parts = []
    for heading, links in menu:
        items = [entry(page, source, title) for source, title in links]
        parts.append(f"<h2>{html.escape(heading)}</h2>" * bool(heading) + f"<ul>{''.join(items)}</ul>")
    title = "Tidegate" if page.source == HOME else f"{page.title} · Tidegate"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title>"
        f'<link rel="stylesheet" href="{relative(page, Path("style.css"))}"></head>\n'
        '<body><input type="checkbox" id="menu" aria-label="Show the menu"><label for="menu">Menu</label>\n'
        f"<nav>{''.join(parts)}</nav>\n<main>{inside}</main></body></html>\n"
    )


def entry(page: Page, source: Path, title: str) -> str:
    """One line of the menu."""
    here = ' aria-current="page"' if source == page.source else ""
    target = Page(source, [], "", set()).target
    return f'<li><a href="{relative(page, target)}"{here}>{html.escape(title)}</a></li>'


def shown(path: Path) -> str:
    """A source as people name it."""
    return path.relative_to(ROOT).as_posix()


def main() -> int:
    """Build into the folder that is named, or into `site`."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site"
    try:
        count = build(folder)
    except BrokenDocs as wrong:
        sys.stderr.write(f"{wrong}\n")
        return 1
    sys.stdout.write(f"{count} pages: {folder / 'index.html'}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
