"""The page about PostgreSQL shows what the code does."""

from __future__ import annotations

from dataclasses import astuple

from tests.docs.pages import blocks, sections
from tidegate.sinks import postgres_tables as tables
from tidegate.sinks.postgres_link import Patience

PAGE = "docs/how-to/write-to-postgresql.md"


def test_the_tables_of_the_page_are_those_that_are_made() -> None:
    [shown] = blocks(PAGE, "sql")
    made = [tables.OFFSETS, tables.OUTBOX, tables.PASSES, tables.PASSES_BY_AGE]
    assert shown == "".join(f"{statement.strip()};\n" for statement in made)
    assert f"kept for {tables.KEPT_DAYS} days" in sections(PAGE)["Tidegate's own tables"]


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    rows = [line.split("|")[2] for line in sections(PAGE)["Limits on time"].splitlines() if line.startswith("| a ")]
    assert [float(row) for row in rows] == list(astuple(Patience()))
