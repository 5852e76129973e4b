"""What a long run is weighed by: memory, threads, descriptors, processes, temporary files; and what of it is too much.

All but the weighing itself is pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.hygiene import descriptors_of, resident_bytes, thread_count

if TYPE_CHECKING:
    from tidegate.testing import Program

ROLES = ("driver", "jvm", "workers")
TEMPORARY = "temporary"
"""The role of what lies in the folder for temporary files: its megabytes are on the disk."""
STEEPEST = 1.0
"""Megabytes per minute."""
MOST = {"threads": 4, "descriptors": 16, "processes": 1, "files": 40}
"""By how much a count may have grown at the end. Pools fill up late, and files come and go with the rounds."""
_SHARE = 5
"""What was there after the warm-up, and at the end: the middle of the first fifth of the samples, and of the last."""


@dataclass(frozen=True)
class Sample:
    """All processes of one role at a moment."""

    minutes: float
    role: str
    megabytes: float
    threads: int = 0
    descriptors: int = 0
    processes: int = 0
    files: int = 0


def weigh(program: Program, temporary: Path, minutes: float) -> list[Sample]:
    """Weigh every process of the program, by role, and its temporary files."""
    roles: dict[str, list[int]] = {role: [] for role in ROLES}
    for pid in program.processes():
        roles["driver" if pid == program.pid else "jvm" if _is_java(pid) else "workers"].append(pid)
    processes = [
        Sample(
            minutes,
            role,
            sum(map(resident_bytes, pids)) / 1e6,
            sum(map(thread_count, pids)),
            sum(descriptors_of(pid).total() for pid in pids),
            len(pids),
        )
        for role, pids in roles.items()
    ]
    sizes = list(_sizes(temporary))
    return [*processes, Sample(minutes, TEMPORARY, sum(sizes) / 1e6, files=len(sizes))]


def of_role(samples: Iterable[Sample], role: str, warm_up: float = 0.0) -> list[Sample]:
    """Return those of one role after the warm-up."""
    return [one for one in samples if one.role == role and one.minutes >= warm_up]


def slope(samples: Sequence[Sample]) -> float | None:
    """Return the growth in megabytes per minute, by least squares; None where there are too few samples."""
    if len(samples) < 2:
        return None
    middle = statistics.fmean(one.minutes for one in samples)
    level = statistics.fmean(one.megabytes for one in samples)
    spread = sum((one.minutes - middle) ** 2 for one in samples)
    return sum((one.minutes - middle) * (one.megabytes - level) for one in samples) / spread


def piled_up(samples: Sequence[Sample]) -> dict[str, int]:
    """Return by how much each count has grown, from the first samples to the last."""
    count = max(1, len(samples) // _SHARE)
    return {name: _middle(samples[-count:], name) - _middle(samples[:count], name) for name in MOST}


def complaints(samples: Sequence[Sample], warm_up: float) -> list[str]:
    """Say in words what grows too much after the warm-up; nothing where all is steady."""
    found = []
    for role in (*ROLES, TEMPORARY):
        own = of_role(samples, role, warm_up)
        steepness = slope(own)
        if steepness is None:
            found.append(f"{role}: weighed too seldom after {warm_up:g} minutes of warm-up to say anything")
        elif steepness >= STEEPEST:
            found.append(f"{role}: {steepness:.2f} MB more in each minute")
        found += [f"{role}: {more} {name} more" for name, more in piled_up(own).items() if more > MOST[name]]
    return found


def _middle(samples: Sequence[Sample], name: str) -> int:
    return round(statistics.median(getattr(one, name) for one in samples)) if samples else 0


def _sizes(folder: Path) -> Iterable[int]:
    with suppress(FileNotFoundError):  # they come and go while we look
        for entry in folder.rglob("*"):
            with suppress(FileNotFoundError):
                if entry.is_file():
                    yield entry.stat().st_size


def _is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name == "java"
    except OSError:
        return False
