"""Run schedules: `python -m tests.simulation SEED` tells one, `--schedules N` runs many on all cores."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.campaign import Summary, run_many, run_one, shrink, story
from tests.simulation.plan import plan_of

TOLD_EVERY_SECONDS = 15.0
SHOWN = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", default=0, help="the schedule, or the first of many")
    parser.add_argument("--shrink", action="store_true", help="make it smaller, as long as it shows a breach")
    parser.add_argument("--schedules", type=int, help="run so many, and tell only those that show a breach")
    parser.add_argument("--frames", action="store_true", help="of a DataFrame pipeline")
    parser.add_argument("--once", choices=("kafka",), default="none", help="with marks stored beside effects, there")
    parser.add_argument("--workers", type=int, help="on how many cores")
    asked = parser.parse_args()
    if asked.schedules is not None:
        return many(asked)
    plan = plan_of(asked.seed, is_frames=asked.frames, store=asked.once)
    if asked.shrink and run_one(plan).breaches:
        plan = shrink(plan)
    sys.stdout.write(story(plan) + "\n")
    return 1 if run_one(plan).breaches else 0


def many(asked: argparse.Namespace) -> int:
    began, total, told_at = time.monotonic(), Summary(), 0.0
    try:
        for lot in run_many(asked.seed, asked.schedules, asked.workers, is_frames=asked.frames, store=asked.once):
            total.add(lot)
            for seed, breaches in list(lot.breaches.items())[:SHOWN]:
                sys.stdout.write(f"seed {seed}: {breaches[0]}\n")
            sys.stdout.flush()
            if time.monotonic() - told_at >= TOLD_EVERY_SECONDS:
                told_at = time.monotonic()
                sys.stderr.write(
                    f"{total.schedules:,} of {asked.schedules:,} after {told_at - began:.0f} s, "
                    f"{len(total.breaches)} with a breach\n"
                )
    except KeyboardInterrupt:
        sys.stderr.write("ended; what was run counts\n")
    seconds = time.monotonic() - began
    sys.stdout.write(
        f"{total.schedules} schedules in {seconds:.0f} s ({total.schedules / seconds:.0f} per second), "
        f"{len(total.breaches)} with a breach\n"
    )
    for name, number in sorted((total.counts + total.endings).items()):
        sys.stdout.write(f"  {name}: {number}\n")
    return 1 if total.breaches else 0


if __name__ == "__main__":
    sys.exit(main())
