"""What a process holds: memory, threads, descriptors, children, files. For tests of what is left behind."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TCP_LISTEN = "0A"
_ACCEPTS = 0x10000
"""How the system marks a socket that is a file and takes connections."""


@dataclass(frozen=True)
class Holdings:
    """What one process holds at a moment."""

    threads: tuple[str, ...]
    """By name, as Python or the system calls them."""
    descriptors: Counter[str]
    """How many of each kind: socket, pipe, or the path of a file."""
    children: tuple[str, ...]
    """Their commands."""

    def beyond(self, earlier: Holdings) -> dict[str, object]:
        """Return what is here and was not then; empty where nothing is."""
        more = {
            "threads": sorted((Counter(self.threads) - Counter(earlier.threads)).elements()),
            "descriptors": dict(self.descriptors - earlier.descriptors),
            "children": sorted((Counter(self.children) - Counter(earlier.children)).elements()),
        }
        return {name: found for name, found in more.items() if found}


def own_holdings() -> Holdings:
    """Look at this process."""
    return Holdings(
        tuple(thread.name for thread in threading.enumerate()), descriptors_of(os.getpid()), _children(os.getpid())
    )


def descriptors_of(pid: int) -> Counter[str]:
    """Return the open descriptors of a process, by kind."""
    found: Counter[str] = Counter()
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found[_kind(str(entry.readlink()))] += 1
    return found


def thread_count(pid: int) -> int:
    """Return how many threads a process has, those of its libraries too."""
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir()))
    except OSError:
        return 0


def resident_bytes(pid: int) -> int:
    """Return the memory that a process has in use; 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def listening(pids: Iterable[int]) -> set[str]:
    """Return the sockets on which these processes listen, by the number that the system gave each."""
    own = {socket for pid in pids for socket in _sockets(pid)}
    return own & all_listening()


def all_listening() -> set[str]:
    """Return the sockets of this machine on which anybody listens: TCP, and those that are files."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in _table(name)]
    found = {fields[9] for fields in lines if fields[3] == _TCP_LISTEN}
    return found | {fields[6] for fields in map(str.split, _table("unix")) if int(fields[3], 16) & _ACCEPTS}


def processes_with(variable: str, value: str) -> list[int]:
    """Return the processes that were started with this in their environment, whatever session they are in."""
    wanted = f"{variable}={value}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


@contextmanager
def temporary_place() -> Iterator[tuple[Path, dict[str, str]]]:
    """Give an empty folder, and the environment by which Python and Java put everything temporary there.

    Its name is short: Spark's sockets lie in it.
    """
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as made:  # see above
        yield Path(made), {"TMPDIR": made, "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={made}"}


def files_in(place: Path) -> list[str]:
    """Return everything that lies there, by its path from there."""
    return sorted(str(one.relative_to(place)) for one in place.rglob("*"))


def _table(name: str) -> list[str]:
    return Path(f"/proc/net/{name}").read_text(encoding="ascii", errors="replace").splitlines()[1:]


def _sockets(pid: int) -> set[str]:
    found = set()
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    found.add(target[len("socket:[") : -1])
    return found


def _kind(target: str) -> str:
    return target.partition(":")[0] if target.startswith(("socket:", "pipe:", "anon_inode:")) else target


def _children(pid: int) -> tuple[str, ...]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError, IndexError):
            fields = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            if int(fields[1]) == pid and fields[0] not in ("Z", "X"):
                command = (entry / "cmdline").read_bytes().split(b"\0")
                found.append(b" ".join(command)[:120].decode(errors="replace"))
    return tuple(found)
