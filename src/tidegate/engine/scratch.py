"""One folder for all that Java and Spark put aside while this process lives, removed whatever way it ends.

Java removes its files at an orderly end only. So each process has a folder of its own, locked while it lives, and the
next start removes the folders that nobody holds any more.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PREFIX = "tidegate-run-"
_MOST_CHARACTERS = 60
"""Spark's sockets lie there under names of 42 characters, and the system takes about 100."""

_own: tuple[int, Path] | None = None
"""Of this process alone: a fork must not remove its parent's."""


def scratch_folder() -> Path | None:
    """Return this process's folder, made at the first call; None where Java could not use one.

    It lives as long as the process, not as a run: the JVM that a first run started serves the next ones.
    """
    global _own  # noqa: PLW0603  # one JVM per process, so one folder
    if _own is not None and _own[0] == os.getpid():
        return _own[1]
    place = Path(tempfile.gettempdir()).absolute()
    remove_leftovers(place)
    folder = place / f"{PREFIX}{os.urandom(4).hex()}"
    if len(str(folder)) > _MOST_CHARACTERS or any(letter.isspace() or letter in "\"'" for letter in str(folder)):
        return None
    # Held by this descriptor until the process ends, kill -9 included. Made under another name until it is held:
    # whoever looks for leftovers at this moment must not take it for one.
    unnamed = Path(tempfile.mkdtemp(prefix="tidegate-", dir=place))
    _hold(unnamed)
    unnamed.rename(folder)
    _own = (os.getpid(), folder)
    atexit.register(_remove, os.getpid(), folder)
    return folder


@contextmanager
def cleared_after_a_kill(module: Any) -> Iterator[None]:
    """Let a module that asks `tempfile` for folders get them in ours meanwhile.

    Not by `tempfile.tempdir`: what other threads of this process put aside is not ours to remove.
    """
    if (folder := scratch_folder()) is not None:
        module.tempfile = _Temporaries(folder)
    try:
        yield
    finally:
        module.tempfile = tempfile


class _Temporaries:
    """The module `tempfile`, but for where its folders lie."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def mkdtemp(self) -> str:
        return tempfile.mkdtemp(dir=self._folder)

    def __getattr__(self, name: str) -> Any:
        return getattr(tempfile, name)


def remove_leftovers(place: Path) -> list[Path]:
    """Remove the folders here that no process holds any more; return which."""
    removed = []
    for folder in sorted(place.glob(f"{PREFIX}*")):
        if _is_abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed


def _hold(folder: Path) -> None:
    # The folder itself: those who clear old files out of /tmp leave one that is locked alone.
    fcntl.flock(_open(folder), fcntl.LOCK_EX)


def _is_abandoned(folder: Path) -> bool:
    """Whether it is ours to remove: a folder of this user whose process has ended."""
    try:
        found = _open(folder)
    except OSError:
        return False
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(found).st_uid == os.getuid()
    except OSError:
        return False
    finally:
        os.close(found)


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _remove(owner: int, folder: Path) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
