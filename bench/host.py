"""What machine this is, as far as it matters for figures."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

from tidegate.class_archives import archives_of
from tidegate.dev.jars import KAFKA_VERSION
from tidegate.java import find_java


def describe() -> dict[str, str]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": str(os.cpu_count()),
        "processor": _first(Path("/proc/cpuinfo"), r"model name\s*:\s*(.+)") or platform.machine(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GB",
        "Python": platform.python_version(),
        "Kafka": KAFKA_VERSION,
        "PySpark": importlib.metadata.version("pyspark"),
        "archives of Java's classes": "there" if archives_of(find_java()).are_there else "none",
        "load before the start": f"{os.getloadavg()[0]:.1f}",
    }


def _first(file: Path, pattern: str) -> str:
    try:
        found = re.search(pattern, file.read_text(encoding="utf-8"))
    except OSError:
        return ""
    return found.group(1).strip() if found else ""
