"""Of a long error of Spark's or Java's, the line that says why."""

from __future__ import annotations

import pytest

from tidegate.engine.wording import root_cause

CALL = "An error occurred while calling o257.parquet."
MKDIRS = "java.io.IOException: Mkdirs failed to create file:/nowhere/out"
DENIED = "java.io.FileNotFoundException: /nowhere/out (Permission denied)"
TRACE = "\tat org.apache.spark.sql.DataFrameWriter.parquet(DataFrameWriter.scala:1)"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{CALL}\n: {MKDIRS}\n{TRACE}", MKDIRS),
        (f"{CALL}\n: {MKDIRS}\n{TRACE}\nCaused by: {DENIED}\n{TRACE}", DENIED),
        (CALL, CALL),
        ("", "no reason given"),
    ],
    ids=["what Java threw, not the call", "the last cause", "a call alone", "nothing"],
)
def test_the_line_that_says_why_is_told(text: str, why: str) -> None:
    assert root_cause(text) == why
