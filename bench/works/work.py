"""What every work is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bench.model import Case, Column, Contender
from bench.stage import Stage


class Work(Protocol):
    """Something to be done by contenders, in one or more sizes."""

    letter: str
    title: str
    how: str
    """What is done and measured, in a few sentences, for the page."""
    columns: Sequence[Column]
    """The first is what the chart shows."""

    def cases(self) -> Sequence[Case]: ...

    def run(self, stage: Stage, case: Case, contender: Contender) -> dict[str, float]:
        """Let the contender do it once; raises `Flawed` where it has not done it whole."""
        ...
