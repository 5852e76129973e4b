"""The page about Avro: its programs can be written as they stand, against the schemas that it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.pages import blocks

PAGE = "docs/how-to/read-and-write-avro.md"
INVOICE = {"type": "record", "name": "Invoice", "fields": [{"name": "id", "type": "long"}]}


@pytest.mark.parametrize("number", range(len(blocks(PAGE, "python"))))
def test_every_program_of_the_page_can_be_written(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "invoice.avsc").write_text(json.dumps(INVOICE), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks(PAGE, "python")[number], PAGE, "exec", dont_inherit=True), {})  # noqa: S102  # our own page
