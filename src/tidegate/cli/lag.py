"""`tidegate lag`: how far groups are behind, and what that means."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, get_args

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tidegate.cli.common import (
    AsJson,
    Bootstrap,
    Client,
    chosen_cluster,
    examples,
    made_table,
    missing_group,
    note,
    safe,
    say,
    show_json,
    show_table,
)
from tidegate.cli.completing import complete_group
from tidegate.durations import seconds
from tidegate.errors import EXIT_CANNOT_WORK, BrokerUnreachable, TidegateError
from tidegate.ops.lag import load_groups, load_lag
from tidegate.ops.model import Verdict
from tidegate.ops.survey import Survey
from tidegate.ops.verdicts import severity, spoken
from tidegate.records import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from tidegate.ops.cluster import Cluster
    from tidegate.ops.model import GroupLag

_RECORD_SECONDS = 1.0
_ROOM_FOR_SENTENCES = 110
_GROUPS = ["GROUP", "VERDICT", "LAG", "WAITS", "MEMBERS", "PARTITIONS", "WHY"]
_PARTITIONS = ["TOPIC", "PARTITION", "MARK", "END", "LAG", "SPAN", "WAITS", "KEPT", "VERDICT", "WHY"]


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command(
        "lag",
        short_help="Show how far groups are behind.",
        epilog=examples(
            "lag",
            "lag billing --watch",
            "lag billing --most 1000 --longest 10m",
        ),
    )(show_lag)


def show_lag(
    group: Annotated[
        str | None,
        typer.Argument(
            metavar="GROUP", help="One group, by partition. [default: all groups]", autocompletion=complete_group
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")] = False,
    every: Annotated[str, typer.Option(metavar="DURATION", help="With --watch: how often.")] = "2s",
    most: Annotated[int | None, typer.Option("--most", metavar="N", help="Exit code 1 if more records wait.")] = None,
    longest: Annotated[
        str | None, typer.Option("--longest", metavar="DURATION", help="Exit code 1 if a record waits for longer.")
    ] = None,
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: AsJson = False,
) -> None:
    """Show how far groups are behind, in records and in time, and whether that is as it should be. Any client's groups.

    Joins no group and changes nothing.
    """
    cluster, pause = chosen_cluster(bootstrap, client), seconds(every)
    longest_seconds = None if longest is None else seconds(longest)
    if watch:
        with suppress(KeyboardInterrupt):
            _watch(cluster, group, pause, as_json=as_json)
        return
    found = load_groups(cluster) if group is None else (_known(cluster, load_lag(cluster, group)),)
    if as_json:
        show_json(found if group is None else found[0])
    elif group is None:
        show_table(_GROUPS, _group_rows(found), cut_last=True)
    else:
        for line in _headline(found[0]):
            say(line)
        show_table(*_partition_table(found[0], Console()), cut_last=True)
    if too_far := _too_far(found, most, longest_seconds):
        for sentence in too_far:
            note(sentence)
        raise typer.Exit(EXIT_CANNOT_WORK)


def _known(cluster: Cluster, found: GroupLag) -> GroupLag:
    if found.state == "dead" and not found.partitions:
        raise missing_group(cluster.admin, found.group)
    return found


def _too_far(found: Iterable[GroupLag], most: int | None, longest_seconds: float | None) -> list[str]:
    sentences = []
    for one in found:
        if most is not None and one.lag > most:
            sentences.append(f"group {one.group}: {counted(one.lag, 'record')} wait, more than {most}")
        waits = one.waiting_seconds
        if longest_seconds is not None and waits is not None and waits > longest_seconds:
            sentences.append(f"group {one.group}: a record waits for {spoken(waits)}, longer than allowed")
    return sentences


def _headline(one: GroupLag) -> tuple[str, str]:
    members = counted(len(one.members), "member")
    forgets = "" if one.expiry_days is None else f"  offsets forgotten in {one.expiry_days:.1f} days"
    return f"{one.group}  {one.verdict}  {one.state}  {members}  lag {one.lag}{forgets}", one.why


def _group_rows(found: Sequence[GroupLag]) -> list[tuple[object, ...]]:
    """Return the groups, what needs somebody first."""
    ordered = sorted(found, key=lambda one: (-max(map(severity, one.partitions), default=0), one.group))
    return [
        (
            one.group,
            one.verdict,
            one.lag,
            _time(one.waiting_seconds),
            len(one.members),
            len(one.partitions),
            one.why,
        )
        for one in ordered
    ]


def _partition_table(one: GroupLag, console: Console) -> tuple[list[str], list[tuple[object, ...]]]:
    """Return headings and rows; a narrow terminal has no room for the sentences."""
    rows: list[tuple[object, ...]] = [
        (
            each.partition.topic,
            each.partition.number,
            each.mark,
            each.end_offset,
            each.lag,
            _time(each.lag_seconds),
            _time(each.waiting_seconds),
            None if each.retention_hours is None else f"{each.retention_hours:.0f} h",
            each.verdict,
            each.why,
        )
        for each in one.partitions
    ]
    if console.is_terminal and console.width < _ROOM_FOR_SENTENCES:
        return _PARTITIONS[:-1], [row[:-1] for row in rows]
    return _PARTITIONS, rows


def _time(figure: float | None) -> str | None:
    return None if figure is None else spoken(figure)


def _watch(cluster: Cluster, group: str | None, pause: float, *, as_json: bool) -> None:
    """Show each look in the place of the one before; without a terminal, as one line more."""
    console = Console(highlight=False)
    survey = Survey(cluster, group=group)
    before: dict[str, GroupLag] = {}
    is_live = console.is_terminal and not as_json
    try:
        with Live(console=console, auto_refresh=False, screen=is_live) as live:
            while True:
                problem: TidegateError | None = None
                try:
                    found = survey.look(before, record_seconds=_RECORD_SECONDS)
                    before = {one.group: one for one in found}
                except BrokerUnreachable as error:
                    problem = error  # it may come back: what was seen stays
                    survey.reconnect()
                if group is not None and problem is None:
                    _known(cluster, before[group])
                if is_live:
                    live.update(_screen(console, group, before, problem), refresh=True)
                elif problem is not None:
                    note(str(problem))
                else:
                    _one_line(group, before, as_json=as_json)
                time.sleep(pause)
    finally:
        survey.close()


def _screen(
    console: Console, group: str | None, seen: dict[str, GroupLag], problem: TidegateError | None
) -> RenderableType:
    groups = list(seen.values())
    at = max((one.at for one in groups), default=None)
    when = "" if at is None else f"{at.astimezone():%H:%M:%S}  "
    trouble = [] if problem is None else [Text(safe(f"tidegate: {problem}"))]
    if group is None or group not in seen:
        title = Text(f"{when}{counted(len(groups), 'group')}; Ctrl-C ends it")
        return Group(title, *trouble, made_table(_GROUPS, _group_rows(groups), cut_to=console.width))
    lines = [Text(safe(line)) for line in _headline(seen[group])]
    table = made_table(*_partition_table(seen[group], console), cut_to=console.width)
    return Group(Text(f"{when}Ctrl-C ends it"), *trouble, *lines, table)


def _one_line(group: str | None, seen: dict[str, GroupLag], *, as_json: bool) -> None:
    groups = list(seen.values())
    if as_json:
        show_json(groups if group is None else seen[group])
        return
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if group is not None:
        one = seen[group]
        say(f"{now}  {one.group}  {one.verdict}  lag {one.lag}  {one.why}")
        return
    words = Counter(one.verdict for one in groups)
    shares = ", ".join(f"{words[word]} {word}" for word in get_args(Verdict) if words[word])
    say(f"{now}  {counted(len(groups), 'group')}  lag {sum(one.lag for one in groups)}  {shares}".rstrip())
