"""The user's own modules on their way to other machines: what the program has imported from beside it, packed and sent.

On this machine workers read the same folders. On others they do not: there, what is not installed must be sent. The
program itself travels with its functions. Over Connect Tidegate goes along.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import logging
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from tidegate.engine.scratch import scratch_folder
from tidegate.records import counted

logger = logging.getLogger("tidegate.spark")

MOST_BYTES = 50_000_000
_OURS = ("tidegate", "pyspark", "py4j", "__main__")
_LEFT_OUT = {"__pycache__", ".git"}


def own_paths() -> list[str]:
    """Return where Python finds the user's own modules, without the installation, which workers have themselves."""
    places = [Path(entry).absolute() if entry else Path.cwd() for entry in sys.path]
    installed = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    return [str(place) for place in places if not installed & {place.resolve(), *place.resolve().parents}]


def tidegate_files() -> dict[str, Path]:
    """Return the files of Tidegate itself, by their places in an archive."""
    package = Path(__file__).parent.parent
    return {one.relative_to(package.parent).as_posix(): one for one in _whole(package)}


def own_files(modules: Mapping[str, ModuleType], paths: Sequence[str]) -> dict[str, Path]:
    """Return the files of the modules that were imported from these folders, by their places in an archive.

    Of a package everything goes along: what it imports later, and the data beside it.
    """
    found: dict[str, Path] = {}
    for name, module in list(modules.items()):
        file = getattr(module, "__file__", None)
        top = name.partition(".")[0]
        if file is None or top in _OURS or name.startswith("tidegate_app_"):
            continue
        for folder in map(Path, paths):
            path = Path(file).absolute()
            if (
                path.is_file()
                and path.is_relative_to(folder)
                and path.relative_to(folder).parts[0] in (top, f"{top}.py")
            ):
                for one in _whole(folder / top) if (folder / top / "__init__.py").is_file() else [path]:
                    found.setdefault(one.relative_to(folder).as_posix(), one)
                break
    return found


def pack(files: Mapping[str, Path], folder: Path) -> Path:
    """Write an archive that Python can import from; its name tells its contents, so that no worker keeps an old one."""
    digest = hashlib.blake2b(digest_size=8)
    for place in sorted(files):
        digest.update(f"{place}\0".encode() + hashlib.blake2b(files[place].read_bytes()).digest())
    archive = folder / f"tidegate-modules-{digest.hexdigest()}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for place, path in sorted(files.items()):
            packed.write(path, place)
            # Compiled already, where it is: a worker that compiled all of it would begin a second later. One that
            # fits neither its Python nor the file beside it is left alone.
            if path.suffix == ".py" and (compiled := Path(importlib.util.cache_from_source(str(path)))).is_file():
                packed.write(compiled, f"{place}c")
    return archive


def pack_own_modules(modules: Mapping[str, ModuleType], paths: Sequence[str]) -> Path | None:
    """Pack what the program has imported from beside it; None if that is nothing, or too much to send in silence."""
    files = own_files(modules, paths)
    size = sum(path.stat().st_size for path in files.values())
    tops = ", ".join(sorted({place.partition("/")[0].removesuffix(".py") for place in files}))
    if size > MOST_BYTES:
        logger.warning(
            "the modules beside the program (%s) have %d MB and are not sent to Spark's workers: install them there "
            "or pass them with --py-files",
            tops,
            size // 1_000_000,
            extra={"action": "modules_too_large"},
        )
        return None
    if not files:
        return None
    logger.info(
        "sent to Spark's workers: %s from beside the program (%s)",
        counted(len(files), "file"),
        tops,
        extra={"action": "modules_sent"},
    )
    # Spark hands it out from where it lies, to executors that come later, too.
    # Below the folder that the next start removes: a kill leaves nothing.
    folder = tempfile.mkdtemp(prefix="tidegate-modules-", dir=scratch_folder())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return pack(files, Path(folder))


def _whole(package: Path) -> Iterator[Path]:
    for path in sorted(package.rglob("*")):
        if path.is_file() and not _LEFT_OUT & set(path.parts) and path.suffix not in (".pyc", ".so"):
            yield path
