"""One run of chaos: start the fleet, feed it, strike it, let it finish, and judge it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from tests.chaos.fleet import assembled
from tests.chaos.looks import Looks, settled_by_part, told_too_early
from tests.chaos.member import KEYS, PARTITIONS, Member, Verdict
from tests.chaos.report import ChaosReport, PipelineReport, fault_reports, pipeline_report
from tidegate.errors import TidegateError
from tidegate.kafka.commits import CommitSeen
from tidegate.ops.produce import Message
from tidegate.testing import Attack, Schedule, Stage, read_copies

FEED_SECONDS = 2.0
FEED_RECORDS = 40
START_SECONDS = 300.0
DRAIN_SECONDS = 240.0

Say = Callable[[str], None]


def run_chaos(
    schedule: Schedule,
    kinds: Sequence[str],
    folder: Path,
    *,
    copies: int = 2,
    nodes: int = 1,
    together: int = 1,
    again_with: str = "",
    say: Say = lambda _: None,
) -> ChaosReport:
    """Run it, and return what it came to.

    `nodes`: of Kafka. `together`: how many pipelines start side by side. `again_with`: the command for the same again.
    """
    say(str(schedule))
    with Stage(nodes) as stage, assembled(stage, folder, kinds, copies) as fleet:
        attack = Attack(stage, [one.trial for one in fleet], say)
        with Looks(fleet) as looks:
            with Feed(fleet):
                # Some at a time. Seventeen Sparks that start at once on two cores are a fault of their own: it takes so
                # long that lanes count as stalled and are replaced, and no fault of the schedule explains the repeats.
                for first in range(0, len(fleet), together):
                    start(fleet[first : first + together], say)
                attack.run(schedule)
            say("the faults are over")
            for member in fleet:
                member.trial.finish(DRAIN_SECONDS)
                say(f"{member.kind} has ended")
        commits = {one.trial.subject.group: one.trial.commits() for one in fleet}
        for one in fleet:
            keep(one.trial.folder / "commits", commits[one.trial.subject.group])
        return ChaosReport(
            schedule.seed,
            schedule.seconds,
            again_with,
            [report_of(one, looks.answers[one.kind]) for one in fleet],
            fault_reports(attack.struck, commits),
            list(map(str, attack.struck)),
            nodes,
        )


def start(members: Sequence[Member], say: Say) -> None:
    """Start these, and wait until all of them are at work."""
    for member in members:
        member.trial.start()
    for member in members:
        is_at_work = member.trial.wait_for_work(START_SECONDS)
        say(f"{member.kind} {'is at work' if is_at_work else 'does not begin to work'}")


def report_of(member: Member, answers: Sequence[CommitSeen]) -> PipelineReport:
    """Judge a pipeline, and what whoever asked for its marks was told meanwhile."""
    verdict, trial = judged(member), member.trial
    copies = read_copies(trial.stage.kafka, trial.subject.group)
    parts = settled_by_part(verdict, trial.log.read().events)
    early = told_too_early(trial.produced, parts, answers, copies)
    return pipeline_report(member, replace(verdict, breaches=[*verdict.breaches, *early]), len(answers))


def judged(member: Member) -> Verdict:
    """Judge a pipeline. One that cannot be judged is a surprise, and the others are judged all the same."""
    try:
        return member.judge(member.trial)
    except AssertionError as error:
        member.trial.surprises.append(f"it cannot be judged: {error}")
        return Verdict([], 0, 0)


def keep(file: Path, commits: Iterable[CommitSeen]) -> None:
    """Keep what the group committed beside the records: with the broker it would be gone."""
    rows = [
        {"at_ms": one.committed_at_ms, "topic": one.partition.topic, "partition": one.partition.number,
         "mark": one.mark, "metadata": one.metadata}
        for one in commits
    ]  # fmt: skip
    file.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


class Feed:
    """Writes numbers to the topics of all pipelines, a few at a time, until the `with` block ends."""

    def __init__(self, fleet: Sequence[Member]) -> None:
        self._fleet = fleet
        self._is_over = threading.Event()
        self._numbers = dict.fromkeys([one.kind for one in fleet], 0)
        self._thread = threading.Thread(target=self._feed, name="feed", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._is_over.set()
        if kind is None:  # otherwise somebody pressed Ctrl-C, and nobody waits for it
            self._thread.join(120)
            assert not self._thread.is_alive(), "the feed did not end"

    def _feed(self) -> None:
        while not self._is_over.is_set():
            began = time.monotonic()
            for member in self._fleet:
                try:
                    member.trial.produce(self._batch(member.kind))
                except TidegateError:
                    continue  # the broker is away; what it took all the same is found at the end
            self._is_over.wait(max(0.0, FEED_SECONDS - (time.monotonic() - began)))

    def _batch(self, kind: str) -> Iterator[Message]:
        for _ in range(FEED_RECORDS):
            number = self._numbers[kind]
            self._numbers[kind] += 1
            key = number % KEYS
            yield Message(str(number), key=str(key), partition=key % PARTITIONS)
