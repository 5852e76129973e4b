"""Tidegate as its users get it: a wheel, installed into an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

PROJECT = Path(__file__).parents[1]
_SOURCES = ("pyproject.toml", "README.md", "src")


def build_wheel(folder: Path) -> Path:
    """Build the wheel from a copy of the sources: what an earlier build left in the project must not get into it."""
    copy = folder / "sources"
    copy.mkdir()
    for name in _SOURCES:
        _copy(PROJECT / name, copy / name)
    _pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", str(folder), str(copy))
    (wheel,) = folder.glob("tidegate-*.whl")
    return wheel


def install(wheel: Path, folder: Path, extras: str = "", pyspark: str = "") -> Path:
    """Make an environment with nothing but this wheel and what it asks for; return the folder of its programs.

    `pyspark` chooses another version than the pinned one, such as `4.2.*`.
    """
    environment = folder / "environment"
    _run([sys.executable, "-m", "venv", str(environment)])
    pinned = (PROJECT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    constraints = folder / "constraints.txt"
    kept = [line for line in pinned if not pyspark or not line.startswith("pyspark")]
    constraints.write_text("\n".join(kept), encoding="utf-8")
    wanted = [f"{wheel}[{extras}]" if extras else str(wheel), *([f"pyspark=={pyspark}"] if pyspark else [])]
    _pip(str(environment / "bin" / "python"), "install", "--no-compile", "--constraint", str(constraints), *wanted)
    return environment / "bin"


def files_in(wheel: Path) -> set[str]:
    """Name what the wheel holds of the package."""
    with ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("tidegate/")}


def files_in_source() -> set[str]:
    """Name what the package consists of."""
    root = PROJECT / "src"
    found = (path for path in (root / "tidegate").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(root).as_posix() for path in found}


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    else:
        shutil.copy(source, target)


def _pip(python: str, *words: str) -> None:
    _run([python, "-m", "pip", *words, "--quiet", "--disable-pip-version-check"])


def _run(command: list[str]) -> None:
    without = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    done = subprocess.run(command, env=without, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
