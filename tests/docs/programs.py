"""Programs of the documentation, run as processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.dev.broker import Broker

LOG_TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", re.MULTILINE)


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def environment(broker: Broker) -> Mapping[str, str]:
    """Settings of whoever runs the tests must not change what they prove."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE_", "PYSPARK_"))}
    cache = {name: value for name, value in os.environ.items() if name == "TIDEGATE_CACHE"}
    return {
        **kept,
        **cache,
        "TIDEGATE_BOOTSTRAP": broker.bootstrap,
        "TIDEGATE_MASTER": "local[2]",
        "PYSPARK_PYTHON": sys.executable,
    }


def tidegate(words: list[str], folder: Path, broker: Broker) -> Ended:
    return run_python(["-m", "tidegate.cli", *words], folder, environment(broker))


def run_python(words: list[str], folder: Path, variables: Mapping[str, str], within: float = 200) -> Ended:
    answer = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within,
        check=False,
    )
    return Ended(answer.returncode, LOG_TIME.sub("", answer.stdout), LOG_TIME.sub("", answer.stderr))
