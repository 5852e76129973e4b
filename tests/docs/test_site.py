"""The site is built from the pages in seconds, leads nowhere wrong, and asks nobody else for anything."""

from __future__ import annotations

import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from scripts.build_docs import build

from tests.docs.pages import PAGES, ROOT


class Addresses(HTMLParser):
    """What a page links to, what it loads, and the names within it that others may link to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert tag not in ("script", "iframe", "object"), "pages are text"
        self.ids.add(given.get("id", ""))
        if tag == "a":
            self.links.append(given["href"])
        elif "src" in given or "href" in given:
            self.loads.append(given.get("src") or given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(folder)
    return folder


def test_every_page_and_every_example_is_in_the_site(site: Path) -> None:
    assert len(list(site.rglob("*.html"))) == len(PAGES) + len(list((ROOT / "examples").glob("*.py")))
    assert "<h1" in (site / "index.html").read_text(encoding="utf-8")


def test_every_link_of_the_site_leads_to_a_file_and_a_heading_that_is_there(site: Path) -> None:
    pages = {page.resolve(): Addresses(page) for page in site.rglob("*.html")}
    for page, addresses in pages.items():
        for link in addresses.links:
            if link.startswith("https://"):
                continue
            path, _, anchor = link.partition("#")
            there = (page.parent / path).resolve() if path else page
            assert there in pages, f"{page.name}: {link}"
            assert not anchor or anchor in pages[there].ids, f"{page.name}: {link}"


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for address in Addresses(page).loads:
            assert (page.parent / address).resolve().is_file(), f"{page.name}: {address}"
    style = (site / "style.css").read_text(encoding="utf-8")
    assert "url(" not in style
    assert "@import" not in style


MISTAKES = {
    "[gone](nowhere.md)": "docs/rest.md: nowhere.md leads to no page",
    "[gone](cli.md#nothing)": "docs/rest.md: cli.md#nothing names a heading that is not there",
    "![gone](images/gone.png)": "docs/rest.md: the picture images/gone.png is not in docs/",
}


def test_mistakes_end_the_build_and_are_named(tmp_path: Path) -> None:
    for folder in ("docs", "examples", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for page in ROOT.glob("*.md"):
        shutil.copy(page, tmp_path)
    with (tmp_path / "docs" / "rest.md").open("a", encoding="utf-8") as file:
        file.writelines(f"\n{mistake}\n" for mistake in MISTAKES)
    (tmp_path / "docs" / "how-to" / "new.md").write_text("# New", encoding="utf-8")
    words = [sys.executable, "scripts/build_docs.py"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [*MISTAKES.values(), "docs/how-to/new.md is not listed in docs/README.md"]
    assert not (tmp_path / "site").exists(), "half a site is none"
