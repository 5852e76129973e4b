"""Is there a Spark master where one was named, and is it one? Spark itself would say something else, after a minute."""

from __future__ import annotations

import re
import socket

from tidegate.errors import SettingsError, SparkFailed
from tidegate.machine import spark_remote

ANSWER_SECONDS = 5.0
_PLACES = re.compile(r"([^,/]+):(\d+)(?:,|$)")


def refuse_silent_master(master: str) -> None:
    """Raise where none of the masters of a standalone cluster takes a connection; of other masters nothing is known."""
    if not master.startswith("spark://"):
        return
    places = _PLACES.findall(master.removeprefix("spark://"))
    if places and not any(_answers(host, int(port)) for host, port in places):
        raise SparkFailed(
            f"no Spark master answers at {', '.join(f'{host}:{port}' for host, port in places)}",
            "start it, or mend its address: it stands at the top of the master's page",
        )


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


_MASTERS = re.compile(r"local(\[(\d+|\*)(,\s*\d+)?\])?|(spark|k8s|sc)://.+|yarn")


def refuse_unknown_master(master: str) -> None:
    """Spark would say so too, with a stack trace of its launcher."""
    if _MASTERS.fullmatch(master) is None:
        raise SettingsError(
            f"master={master!r} is no Spark master",
            "use local[N], spark://host:port, sc://host:port, k8s://... or yarn",
        )
    if spark_remote() and not master.startswith("sc://"):
        raise SettingsError(
            f"SPARK_REMOTE is set and master={master}: PySpark has no other Spark beside a Connect server",
            "unset SPARK_REMOTE, or choose the server: master=sc://host:port",
        )
