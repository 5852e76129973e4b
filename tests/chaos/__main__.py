"""`python -m tests.chaos --seconds 60 --seed 1`: strike, judge, report; exit code 1 where a law did not hold."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import orjson

from tests import class_archives
from tests.chaos.fleet import KINDS
from tests.chaos.report import as_text
from tests.chaos.run import run_chaos
from tidegate.testing import EVERY_FAULT, EVERY_FAULT_OF_NODES, Schedule


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    words.add_argument("--seconds", type=float, default=60.0, help="for how long faults come")
    words.add_argument("--seed", type=int, default=None, help="the schedule; by chance where it is not given")
    words.add_argument("--every", type=float, default=4.0, help="seconds between faults, on average")
    words.add_argument("--copies", type=int, default=2, help="processes of each pipeline")
    words.add_argument("--nodes", type=int, default=1, help="of Kafka; with three, they are struck one by one")
    words.add_argument("--pipelines", default=",".join(KINDS), help=f"some of {', '.join(KINDS)}")
    words.add_argument("--json", type=Path, default=None, help="write the report there, too")
    words.add_argument("--folder", type=Path, default=None, help="keep logs and records there")
    asked = words.parse_args()
    kinds = [kind for kind in asked.pipelines.split(",") if kind]
    if unknown := set(kinds) - set(KINDS):
        words.error(f"no such pipeline: {', '.join(sorted(unknown))}")
    # SIGTERM ends it as Ctrl-C does: everything that it started is ended, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    class_archives.use()
    seed = random.randrange(10**6) if asked.seed is None else asked.seed
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="tidegate-chaos-"))
    began = time.monotonic()

    def say(sentence: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began:7.1f}  {sentence}\n")

    faults = EVERY_FAULT if asked.nodes == 1 else EVERY_FAULT_OF_NODES
    schedule = Schedule.random(seed, asked.seconds, faults, every=asked.every)
    again = f"make chaos SECONDS={asked.seconds:g} SEED={seed} EVERY={asked.every:g} NODES={asked.nodes} "
    again += f"PIPELINES={','.join(kinds)}"
    report = run_chaos(schedule, kinds, folder, copies=asked.copies, nodes=asked.nodes, again_with=again, say=say)
    sys.stdout.write(f"{as_text(report)}\nlogs and records: {folder}\n")
    if asked.json is not None:
        asked.json.write_bytes(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2))
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
