"""The peers' environments: one each in the cache folder, made from pinned names, mended where a package needs it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.proof.spark_connector import fetch_connector

from tidegate.machine import cache_folder

ROOT = Path(__file__).parent.parent
OWN = "own"
INSTALL_SECONDS = 900
IMPORTS = """
import ast, importlib, pathlib, sys
for line in ast.parse(pathlib.Path(sys.argv[1]).read_text()).body:
    if isinstance(line, (ast.Import, ast.ImportFrom)):
        for name in [one.name for one in line.names] if isinstance(line, ast.Import) else [line.module]:
            importlib.import_module(name)
"""
"""Imports what a program imports at its top, and runs nothing of it."""


class NotInstalled(Exception):
    """A peer cannot be set up on this machine; the text says why."""


@dataclass(frozen=True)
class Environment:
    """What is installed, and what must be mended before it can be imported."""

    packages: tuple[str, ...]
    mend: Callable[[Path], None] | None = None
    """Called with the folder of the installed packages."""


def replace(file: Path, old: str, new: str) -> None:
    """Change installed text; that it is not there (any more) is an error, for then the pinned version has changed."""
    text = file.read_text(encoding="utf-8")
    if new not in text and old not in text:
        raise NotInstalled(f"{file.name} has no {old!r}: the package is not the one that was mended before")
    if new not in text:
        file.write_text(text.replace(old, new), encoding="utf-8")


def python_of(name: str) -> Path:
    """Return the Python of an environment, made first where it is missing."""
    if name == OWN:
        return Path(sys.executable)
    from bench.peers import ENVIRONMENTS  # noqa: PLC0415  # they need `replace` from here

    environment = ENVIRONMENTS[name]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    pins = hashlib.sha256(" ".join((version, *environment.packages)).encode()).hexdigest()[:8]
    folder = cache_folder() / "bench" / f"{name}-{pins}"
    python, done = folder / "bin" / "python", folder / "complete"
    if not done.exists():
        print(f"setting up {name}: {', '.join(environment.packages)}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            venv.create(folder, with_pip=True)
            install = [str(python), "-m", "pip", "install", "-q", *environment.packages]
            subprocess.run(install, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
            if environment.mend is not None:
                environment.mend(folder / "lib" / f"python{version}" / "site-packages")
        except subprocess.CalledProcessError as error:
            said = str(error.stderr).strip().splitlines() or ["no reason given"]
            raise NotInstalled(f"pip could not install it: {said[-1]}") from error
        except (OSError, subprocess.SubprocessError) as error:
            raise NotInstalled(f"its environment could not be made: {error}") from error
        done.touch()
    return python


def check_imports(python: Path, program: str) -> None:
    """See that what a contender imports is there, in its own environment."""
    program_file = ROOT / "bench" / "contenders" / f"{program}.py"
    done = subprocess.run(
        [str(python), "-c", IMPORTS, str(program_file)],
        capture_output=True,
        text=True,
        env=variables(own=False),
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no reason given"]
        raise NotInstalled(f"it cannot be imported: {said[-1]}")


def variables(*, own: bool) -> dict[str, str]:
    """The variables of a contender: ours, without what would lead a peer to Tidegate's packages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
    return {
        **kept,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}" if own else str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore",
    }


def connector_jars() -> str:
    """Return the jars of Spark's Kafka connector, fetched once, with commas."""
    folder = cache_folder() / "bench" / "spark-kafka-connector"
    if not (folder / "complete").exists():
        try:
            fetch_connector(folder)
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            raise NotInstalled("the jars of Spark's Kafka connector could not be fetched") from error
        (folder / "complete").touch()
    return ",".join(map(str, sorted((folder / "jars").glob("*.jar"))))
