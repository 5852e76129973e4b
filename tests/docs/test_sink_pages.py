"""The pages about sinks: their programs can be written as they stand."""

from __future__ import annotations

import pytest

from tests.docs.pages import blocks

PAGES = ["docs/how-to/write-to-kafka.md", "docs/how-to/write-to-postgresql.md", "docs/how-to/send-to-http.md"]


@pytest.mark.parametrize(
    ("page", "number"), [(page, at) for page in PAGES for at in range(len(blocks(page, "python")))]
)
def test_every_program_of_the_page_can_be_written(page: str, number: int) -> None:
    exec(compile(blocks(page, "python")[number], page, "exec", dont_inherit=True), {})  # noqa: S102  # our own page
