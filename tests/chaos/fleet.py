"""The fleet that chaos attacks: some pipelines or all, made and at the end cleared away."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.chaos.makers import MAKERS
from tests.chaos.member import Maker, Member
from tidegate.testing import Stage

KINDS = tuple(MAKERS)


@contextlib.contextmanager
def assembled(stage: Stage, folder: Path, kinds: Iterable[str], copies: int = 2) -> Iterator[list[Member]]:
    """Make the pipelines of these kinds, not yet started; whatever runs at the end is killed."""
    with contextlib.ExitStack() as stack:
        made = []
        for kind in kinds:
            own = folder / kind
            own.mkdir(parents=True)
            member = MAKERS[kind](Maker(kind, stage, own, copies, stack))
            stack.callback(member.trial.close)
            made.append(member)
        yield made
