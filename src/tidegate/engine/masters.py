"""Is there a Spark master where one was named? Spark itself would try for a minute, and then say something else."""

from __future__ import annotations

import re
import socket

from tidegate.errors import SparkFailed

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
