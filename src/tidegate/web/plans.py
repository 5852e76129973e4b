"""Plans that were shown: what is then done is what was shown, once, or nothing."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

import orjson

from tidegate.ops.plain import plain
from tidegate.web.answers import Refused

MOST_KEPT = 200
KEPT_SECONDS = 900.0


@dataclass(frozen=True)
class _Kept:
    asked: object
    plan: object
    until: float


class Plans:
    """Remembers plans for a while, by their fingerprints. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def keep(self, asked: object, plan: object, shown: object) -> str:
        """Remember a plan for what was asked; return the fingerprint of what is shown of it."""
        content = orjson.dumps(plain([asked, shown]), option=orjson.OPT_SORT_KEYS)
        fingerprint = hashlib.sha256(content).hexdigest()[:32]
        with self._lock:
            self._kept[fingerprint] = _Kept(asked, plan, time.monotonic() + KEPT_SECONDS)
            self._kept.move_to_end(fingerprint)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return fingerprint

    def take(self, fingerprint: str | None, asked: object) -> object:
        """Return the plan, which is forgotten: nothing is done twice because somebody pressed twice."""
        if fingerprint is None:
            raise Refused(
                422, "plan_missing", "what is to be done was not shown", "ask with dry_run, then send its fingerprint"
            )
        with self._lock:
            kept = self._kept.get(fingerprint)
            if kept is not None and kept.asked == asked:
                del self._kept[fingerprint]
        if kept is None or kept.until < time.monotonic():
            raise changed("the plan is no longer known, or was carried out already")
        if kept.asked != asked:
            raise changed("the fingerprint is that of another plan")
        return kept.plan


def changed(why: str) -> Refused:
    """Say that what was shown is not what would be done now."""
    return Refused(409, "plan_changed", why, "ask again with dry_run, look, and send the new fingerprint")
