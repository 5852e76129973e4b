"""Imports go downward only, and the pure modules stay pure."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate

ROOT = Path(tidegate.__file__).parent

# From the ground up: a module may import from its own row and from rows above it in this list.
LAYERS = [
    {"beside", "errors", "machine"},
    {"deadlines", "durations", "records"},
    {"secrets"},
    {"settings", "tls"},
    {"class_archives", "copies", "headers", "java", "ledger", "names", "places"},
    {"context", "policy"},
    {"steps", "formats", "frames", "logs", "store"},
    {"async_steps", "lists", "refusals", "sinks"},
    {"kafka", "history"},
    {"pipeline"},
    {"engine"},
    {"ops"},
    {"dev"},
    {"testing"},
    {"web"},
    {"", "cli"},
]
# `Pipeline.run` starts the engine, which is built on pipelines: one lazy import, in one place.
ALLOWED_UPWARD = {("pipeline", "engine")}

PURE = [
    "durations",
    "errors",
    "records",
    "ledger",
    "steps",
    "places",
    "copies",
    "headers",
    "names",
    "policy",
    "store",
    "engine/board",
    "engine/frame_board",
    "engine/planning",
    "engine/lost",
    "engine/topics",
    "ops/verdicts",
    "sinks/http_requests",
]
IMPURE_MODULES = {"confluent_kafka", "pyspark", "threading", "time", "socket", "queue", "asyncio", "subprocess", "os"}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def layer_of(name: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if name in layer)


def family(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def imported(path: Path) -> set[str]:
    """Return every module that a file imports at run time, lazily or not."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downward(path: Path) -> None:
    here = family(path)
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != "tidegate" or len(parts) < 2:
            continue
        there = parts[1]
        if (ROOT / there).exists() or (ROOT / f"{there}.py").exists():
            upward = layer_of(there) > layer_of(here)
            assert not upward or (here, there) in ALLOWED_UPWARD, f"{here or 'tidegate'} imports {name}"


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_know_no_client_no_clock_no_thread(name: str) -> None:
    roots = {one.split(".")[0] for one in imported(ROOT / f"{name}.py")}
    assert not roots & IMPURE_MODULES


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_grows_past_four_hundred_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_a_worker_imports_nothing_that_is_slow_and_of_no_use_to_it() -> None:
    slow = {"pandas", "pyarrow", "pyspark", "sqlalchemy", "fastapi", "nicegui", "aiohttp", "httptools", "typer", "rich"}
    program = "import sys, tidegate, tidegate.engine.task; print(*{one.split('.')[0] for one in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & slow == set()
