"""Work B: every record to an HTTP server that answers after 5 ms."""

from __future__ import annotations

import http.client
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.environments import variables
from bench.model import Case, Column, Contender, Flawed
from bench.processes import Program
from bench.stage import Stage
from bench.works.throughput import check_ids

LIMIT_SECONDS = 300.0
START_SECONDS = 20.0


@contextmanager
def slow_server(folder: Path) -> Iterator[int]:
    """Start the server for one run; gives its port."""
    own = Path(tempfile.mkdtemp(prefix="server-", dir=folder))
    command = [sys.executable, "-m", "bench.works.slow_server", str(own / "port")]
    program = Program(command, log=own / "log", environment=variables(own=True), folder=own)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not (own / "port").exists():
            if time.monotonic() > deadline or not program.is_running:
                raise RuntimeError(f"the slow server did not start: {program.last_words()}")
            time.sleep(0.02)
        yield int((own / "port").read_text(encoding="utf-8"))
    finally:
        program.kill()


def seen_by(port: int) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/")
    facts: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return facts


class SlowSink:
    letter = "B"
    title = "A slow sink"
    how = (
        "Every record goes to an HTTP server on the same machine that answers after 5 ms. The server counts the ids, "
        "and says how long it took from the first request to the last. The load generator reads nothing from Kafka: "
        "128 connections that send as soon as the answer is in, which is what the server and the cores allow."
    )
    columns: Sequence[Column] = (Column("rate", "records/s"), Column("repeated", "sent twice"))

    def __init__(self, records: int) -> None:
        self.records = records

    def cases(self) -> Sequence[Case]:
        return [Case("", {"records": self.records})]

    def run(self, stage: Stage, case: Case, contender: Contender) -> dict[str, float]:
        wanted = max(200, int(case.facts["records"] * contender.share.get("B", 1.0)))
        with slow_server(stage.folder) as port:
            url, options = f"http://127.0.0.1:{port}/x", {"count": wanted}
            attempt = stage.attempt("B", contender, stage.topic(wanted), url=url, options=options)
            with attempt as program:
                deadline = time.monotonic() + LIMIT_SECONDS
                while (facts := seen_by(port))["ids"] < wanted:
                    if not program.is_running and seen_by(port)["ids"] < wanted:
                        raise Flawed(f"it ended with {facts['ids']:,} records of {wanted:,} sent")
                    if time.monotonic() > deadline:
                        raise Flawed(f"after {LIMIT_SECONDS:.0f} s it had sent {facts['ids']:,} records of {wanted:,}")
                    time.sleep(0.1)
            last = seen_by(port)
        check_ids(last["ids"], last["sum"], wanted)
        return {"rate": (facts["count"] - 1) / facts["seconds"], "repeated": last["count"] - wanted}
