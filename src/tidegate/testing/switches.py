"""Files by which a trial tells the program that it tries what its sink is to do, and hears that it did."""

from __future__ import annotations

import time
from pathlib import Path

from tidegate.errors import Unavailable

FAIL, SLOW, FILL = "fail sink", "slow sink", "fill metadata"
SLOW_SECONDS = 0.5


class Switch:
    """Beside a record log, by its path: asked by the program, turned by a trial.

    Call `meet()` first in the sink: while the sink is to fail it raises `tg.Unavailable`, while it is to be slow it
    takes its time. `is_on("fill metadata")` asks for what only the program can do.
    """

    def __init__(self, log_path: Path | str) -> None:
        self._path = str(log_path)

    def meet(self) -> None:
        """Do to this record what the trial wants done."""
        if self.is_on(FAIL):
            raise Unavailable("the sink is away: a trial has turned its switch")
        if self.is_on(SLOW):
            time.sleep(SLOW_SECONDS)

    def is_on(self, name: str) -> bool:
        """Whether it is on. That it was asked while it was leaves a sign: `was_met`."""
        if not self._sign(name).exists():
            return False
        self._met(name).touch()
        return True

    def turn(self, name: str, *, on: bool) -> None:
        """Turn it on or off."""
        if on:
            self._met(name).unlink(missing_ok=True)
            self._sign(name).touch()
        else:
            self._sign(name).unlink(missing_ok=True)

    def was_met(self, name: str) -> bool:
        """Whether somebody found it on since it was turned on last."""
        return self._met(name).exists()

    def _sign(self, name: str) -> Path:
        return Path(f"{self._path}.{name.replace(' ', '-')}")

    def _met(self, name: str) -> Path:
        return Path(f"{self._sign(name)}.met")
