"""The pages of the documentation, and their parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")])


@cache
def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@dataclass(frozen=True)
class Block:
    """A code block: where it begins, what it says it is, and what it holds."""

    page: str
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def every_block() -> Iterator[Block]:
    """Give the code blocks of all pages, those without a language too."""
    for page in PAGES:
        begins: tuple[int, str] | None = None
        lines: list[str] = []
        for number, line in enumerate(text(name_of(page)).splitlines(), 1):
            if not line.lstrip().startswith("```"):
                lines.append(line)
            elif begins is None:
                begins, lines = (number, line[3:] if line.startswith("```") else line), []
            else:
                yield Block(name_of(page), *begins, "".join(f"{one}\n" for one in lines))
                begins = None


BLOCKS = tuple(every_block())


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a language, as they would be saved to a file."""
    return [block.code for block in BLOCKS if block.page == page and block.language == language]


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
