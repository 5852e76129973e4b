"""Rewind a group and run again: as a program, `python rewind_reports.py`.

The plan first, then the deed, which is read back. Other groups stay where they are. While a pipeline runs,
`tidegate rewind` does the same: it moves itself.
"""

from __future__ import annotations

import tidegate as tg

reports = tg.from_kafka("orders", group="reports").map(tg.json).sink(print)

if __name__ == "__main__":
    first = reports.run(until="caught-up")
    plan = tg.rewind("reports", "-1", topic="orders", dry_run=True)
    for move in plan.moves:
        print(f"{move.partition}: {move.mark} -> {move.to}, {move.again} to run again")
    tg.rewind("reports", "-1", topic="orders")
    again = reports.run(until="caught-up")
    print(f"first {first.settled}, then {again.settled} again")
