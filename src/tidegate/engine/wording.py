"""What the driver says: partitions and rounds in words, and the errors that end a run."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tidegate.errors import SparkFailed, Stalled, TopicMissing
from tidegate.records import Lease, Partition

_OTHER_PYTHON = re.compile(r"PYTHON_VERSION_MISMATCH.*?worker\D+(\d+)\W+(\d+)\D+driver\D+(\d+\.\d+)")
_NO_MODULE = re.compile(r"No module named '(\w+)")


def names(partitions: Iterable[Partition]) -> str:
    """Name partitions in order."""
    return ", ".join(str(partition) for partition in sorted(partitions)) or "none"


def replaced(lease: Lease, still: Iterable[Partition]) -> str:
    """Say which partitions stand still for a round, and what is done about it."""
    where = f"round {lease.round} of lane {lease.lane}"
    return f"{names(still)} stand still although there is work: {where} is cancelled and its worker replaced"


def died(lease: Lease, error: Exception, *, has_begun: bool) -> str:
    """Say that a round ended without a word, and what follows."""
    partitions = ", ".join(str(item.partition) for item in lease.partitions)
    if not has_begun:
        return f"no worker could be started for round {lease.round} ({partitions}), it is tried again: {error}"
    return f"a worker died in round {lease.round} ({partitions}): what it did not report runs again: {error}"


def stalled(hopeless: Iterable[Partition], flying: Iterable[Lease]) -> Stalled:
    """Say which partitions stand still, and what their lanes are doing."""
    where = {item.partition: lease for lease in flying for item in lease.partitions}
    doing = [f"{one} ({_doing(where.get(one))})" for one in hopeless]
    return Stalled(
        f"{', '.join(doing)}: records wait and the mark does not move, although the lane was replaced",
        "look at what its functions wait for; the marks are safe, a restart goes on from them",
    )


def deleted(topics: Iterable[str]) -> TopicMissing:
    """Say which topics went while they were read."""
    return TopicMissing(
        f"{', '.join(topics)} was deleted while the run read from it", "make it again, or leave it out of from_kafka"
    )


def broken(why: str, cure: str = "") -> SparkFailed:
    """Say why no worker can run the pipeline."""
    return SparkFailed(
        f"the workers cannot run this pipeline: {why}",
        cure
        or "what the functions import must be installed for the Python of Spark's workers (PYSPARK_PYTHON names it)",
    )


def lacking(trace: str, why: str) -> tuple[str, str]:
    """Say what a worker lacks before it can run anything of ours, and what helps, where that is known."""
    if (found := _OTHER_PYTHON.search(trace)) is not None:
        theirs, ours = f"{found.group(1)}.{found.group(2)}", found.group(3)
        return (
            f"they run Python {theirs}, and this program runs Python {ours}",
            f"set PYSPARK_PYTHON to a Python {ours} that the workers have, with Tidegate installed",
        )
    if (found := _NO_MODULE.search(why)) is not None:
        return (
            f"their Python has no module {found.group(1)}",
            "install Tidegate for it, on every machine of the cluster (docs/how-to/run-on-a-cluster.md); "
            "PYSPARK_PYTHON names that Python",
        )
    return why, ""


def no_worker(text: str) -> str | None:
    """Return why Spark could not start the Python worker of a task; None where it did."""
    if (found := _STARTED_BADLY.search(text)) is None:
        return None
    lines = [line.strip() for line in (found.group("said") or "").splitlines() if line.strip()]
    return lines[-1] if lines else found.group(0).strip().splitlines()[0]


_STARTED_BADLY = re.compile(
    r"Error from python worker:\n(?P<said>.*?)\nPYTHONPATH was:|Bad data in \S+'s standard output|"
    r"occurred while reading the port number from \S+|Python daemon failed to launch worker",
    re.DOTALL,
)


def _doing(lease: Lease | None) -> str:
    return "no round" if lease is None else f"round {lease.round} of lane {lease.lane}"


def last_line(text: str) -> str:
    """Return the last line of an error's text that is not Java's."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    useful = [line for line in lines if not line.startswith(("at ", "JVM stacktrace", "..."))]
    return useful[-1] if useful else "no reason given"


def root_cause(text: str) -> str:
    """Return the line of a long error that says why."""
    lines = text.splitlines()
    causes = [line for line in lines if "Caused by:" in line or "Lost task" in line]
    # Python's own first line names a call of Spark's; what Java threw stands behind a colon.
    thrown = [line.removeprefix(": ") for line in lines[1:] if line.startswith(": ")]
    line = (causes[-1:] or thrown[:1] or lines[:1] or ["no reason given"])[0]
    return line.strip().removeprefix("Caused by:").strip()
