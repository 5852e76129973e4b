"""The pages of the documentation, and their parts."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@cache
def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a language, as they would be saved to a file."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text(page), re.DOTALL | re.MULTILINE)


def without_code(page: str) -> str:
    return re.sub(r"^```.*?^```$", "", text(page), flags=re.DOTALL | re.MULTILINE)


def sections(page: str) -> dict[str, str]:
    """Return the text under each heading of the second level."""
    _, *parts = re.split(r"^## ", text(page), flags=re.MULTILINE)
    return {heading.strip(): body for heading, _, body in (part.partition("\n") for part in parts)}


def anchors(page: Path) -> set[str]:
    """Return what a link into a page may name: its headings in small letters, with dashes."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
