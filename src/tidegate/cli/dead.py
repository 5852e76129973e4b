"""`tidegate dead`: look at a group's dead letters, and send them back."""

from __future__ import annotations

import re
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.common import (
    AsJson,
    Bootstrap,
    Client,
    as_text,
    chosen_cluster,
    examples,
    note,
    safe,
    say,
    show_json,
    show_table,
    shown,
)
from tidegate.cli.completing import complete_group, complete_topic
from tidegate.durations import rate_per_second
from tidegate.ops.dead_letters import DeadLetter, DeadTopic, dead_letters, make_filter
from tidegate.ops.redrive import MOST_REDRIVES, RedriveReport, Redriving
from tidegate.records import counted, moment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

family = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, show and redrive dead letters.")

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.", autocompletion=complete_group)]
FromTopic = Annotated[
    str | None,
    typer.Option("--origin", metavar="TOPIC", help="First read from this topic.", autocompletion=complete_topic),
]
WithError = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="This type of error, or this text in its message.")
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Written since: 2026-01-31T12:00Z, or 2h for 2 hours ago.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Written before this time.")]
WithKey = Annotated[str | None, typer.Option("--key", metavar="TEXT", help="With this key.")]

_LISTED = 100
_VALUE_CHARACTERS = 4000
_KEY_CHARACTERS = 12
_TELL_SECONDS = 5.0
_PLACE = re.compile(r"(\d{1,9}):(\d{1,18})")


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(family, name="dead")


# --- list ---------------------------------------------------------------------------------------------


@family.command(
    "list",
    short_help="Show a group's dead letters.",
    epilog=examples(
        "dead list billing",
        "dead list billing --error KeyError --since 2h",
    ),
)
def list_letters(
    group: Group,
    *,
    origin: FromTopic = None,
    error: WithError = None,
    since: Since = None,
    until: Until = None,
    key: WithKey = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Show at most so many. [default: 100; with --json all]")
    ] = None,
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: AsJson = False,
) -> None:
    """Show a group's dead letters, the oldest of each partition first."""
    kafka = chosen_cluster(bootstrap, client).kafka
    letters = dead_letters(group, origin=origin, error=error, since=since, until=until, key=key, kafka=kafka)
    if as_json:
        for letter in islice(letters, limit):
            show_json(letter)
        return
    most = limit or _LISTED
    listed = list(islice(letters, most + 1))
    if not listed:
        say(f"no dead letters of group {group} match" if any((origin, error, since, until, key)) else "no dead letters")
        return
    show_table(
        ["PLACE", "WRITTEN (UTC)", "ORIGIN", "KEY", "REDRIVEN", "ERROR"],
        [_row(letter) for letter in listed[:most]],
        cut_last=True,
    )
    if len(listed) > most:
        note(f"there are more: these are the first {most}; choose with --limit, --error, --origin, --since, --key")


def _row(letter: DeadLetter) -> tuple[object, ...]:
    return (
        f"{letter.partition}:{letter.offset}",
        _time(letter.written_at),
        f"{letter.origin_topic}[{letter.origin_partition}] {letter.origin_offset}" if letter.is_copy else None,
        shown(letter.key, _KEY_CHARACTERS),
        _redriven(letter) if letter.is_copy else None,
        _error(letter),
    )


def _redriven(letter: DeadLetter) -> str:
    earlier = f" ({letter.redrives})" if letter.redrives else ""
    return f"{'yes' if letter.was_redriven else 'no'}{earlier}"


def _error(letter: DeadLetter) -> str:
    return f"{letter.error_type}: {letter.error_message}" if letter.is_copy else "(not written by Tidegate)"


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.strftime("%Y-%m-%d %H:%M")


# --- show ---------------------------------------------------------------------------------------------


@family.command(
    "show",
    short_help="Show one dead letter in full.",
    epilog=examples(
        "dead show billing 0:17",
    ),
)
def show_letter(
    group: Group,
    letter: Annotated[
        str, typer.Argument(metavar="LETTER", help="Its place, PARTITION:OFFSET, as the list shows it; or its id.")
    ],
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter with its history, traceback and value."""
    topic = DeadTopic(chosen_cluster(bootstrap, client), group)
    place = _PLACE.fullmatch(letter)
    found = [topic.at(int(place[1]), int(place[2]))] if place is not None else topic.by_id(letter)
    for number, one in enumerate(found):
        if as_json:
            show_json(one.letter)
            continue
        if number:
            say("")
        for line in _page(one.letter, topic.info.name):
            say(line)


def _page(letter: DeadLetter, topic: str) -> Iterator[str]:
    yield f"{topic} {letter.partition}:{letter.offset}  written {_exact(letter.written_at)}"
    if letter.is_copy:
        yield _fact("id", safe(letter.stable_id))
        origin = f"{letter.origin_topic}[{letter.origin_partition}] offset {letter.origin_offset}"
        yield _fact("origin", f"{safe(origin)}, of {_exact(letter.origin_timestamp)}")
        yield _fact("error", safe(_error(letter)))
        yield _fact("attempts", f"{letter.attempt}, the first failed {_exact(letter.first_failed_at)}")
        yield _fact("redrives", f"{letter.redrives}; this letter was {'' if letter.was_redriven else 'not '}redriven")
    else:
        yield _fact("", "not written by Tidegate: it has no origin and cannot be redriven")
    yield _fact("key", shown(letter.key))
    for name, value in letter.headers:
        yield _fact("header", f"{safe(name)} = {shown(value)}")
    for past in letter.history:
        failed = f"{past.place}  attempt {past.attempt}  {past.error_type}: {past.message}"
        yield _fact("history", f"{_exact(moment(past.at_ms))}  {safe(failed)}")
    if letter.traceback:
        yield from _block("traceback", letter.traceback)
    yield from _value(letter.value)


def _fact(name: str, content: str) -> str:
    return f"  {name:<11}{content}"


def _value(value: bytes | None) -> Iterator[str]:
    text = None if value is None else as_text(value)
    if value is None or text is None:
        yield _fact("value", shown(value))
        return
    yield from _block(f"value ({counted(len(value), 'byte')})", text[:_VALUE_CHARACTERS])
    if len(text) > _VALUE_CHARACTERS:
        yield f"    ... cut after {_VALUE_CHARACTERS} characters: --json shows all"


def _block(name: str, text: str) -> Iterator[str]:
    """Text of several lines: each escaped and moved in, so that none can pass for a line of ours."""
    yield f"  {name}"
    for line in text.rstrip("\n").split("\n"):
        yield f"    {safe(line)}"


def _exact(at: datetime | None) -> str:
    return "an unknown time" if at is None else at.isoformat(sep=" ", timespec="milliseconds")


# --- redrive ------------------------------------------------------------------------------------------


@family.command(
    "redrive",
    short_help="Send dead letters back to their group.",
    epilog=examples(
        "dead redrive billing --dry-run",
        "dead redrive billing --error TimeoutError --rate 100/s",
    ),
)
def redrive_letters(
    group: Group,
    *,
    origin: FromTopic = None,
    error: WithError = None,
    since: Since = None,
    until: Until = None,
    key: WithKey = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Send at most so many.")] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="Send to this topic. [default: GROUP.redrive]")
    ] = None,
    rate: Annotated[str | None, typer.Option(help='At most so many, evenly: "100/s", "6000/m".')] = None,
    again: Annotated[bool, typer.Option("--again", help="Those that were redriven already, too.")] = False,
    most_redrives: Annotated[
        int, typer.Option(min=1, help="Hold back letters that were redriven so often or more.")
    ] = MOST_REDRIVES,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be sent.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: AsJson = False,
) -> None:
    """Send dead letters back to their group: show the plan, ask, send. Killed midway, it is simply run again."""
    if rate is not None:
        rate_per_second(rate)  # before anything is read: a wrong rate costs no time
    redriving = Redriving(
        chosen_cluster(bootstrap, client),
        group,
        make_filter(origin=origin, error=error, since=since, until=until, key=key),
        to=to,
        again=again,
        most_redrives=most_redrives,
        limit=limit,
    )
    plan = redriving.plan()
    if not as_json:
        _show_plan(plan, most_redrives)
    if redriving.is_elsewhere:
        note(f"every group that reads {plan.to} gets these records, as new ones; without --to only {group} does")
    if not _is_wanted(plan, dry_run=dry_run, yes=yes, as_json=as_json):
        if as_json:
            show_json(plan)
        return
    done = redriving.send(rate=rate, on_progress=_progress(plan.to_send))
    if as_json:
        show_json(done)
    else:
        say(f"sent {counted(done.sent, 'record')} to {done.to}")


def _show_plan(plan: RedriveReport, most_redrives: int) -> None:
    say(f"{counted(plan.matched, 'dead letter')} of group {plan.group}")
    if plan.already_redriven:
        say(f"  {plan.already_redriven} redriven already (--again sends them once more)")
    if plan.held_back:
        places = ", ".join(f"{number}:{record_offset}" for number, record_offset in plan.held)
        more = ", ..." if plan.held_back > len(plan.held) else ""
        say(f"  {plan.held_back} held back, redriven {most_redrives} times or more: {places}{more}")
        say("    mend the cause first; --most-redrives N with a larger N lets them go")
    if plan.foreign:
        say(f"  {plan.foreign} not written by Tidegate: left where they are")
    say(f"  {plan.to_send} to send to {plan.to}")
    if plan.kinds:
        say("")
        show_table(
            ["RECORDS", "ORIGIN", "ERROR"],
            [(kind.count, kind.origin_topic, kind.error_type) for kind in plan.kinds],
        )


def _is_wanted(plan: RedriveReport, *, dry_run: bool, yes: bool, as_json: bool) -> bool:
    if not plan.to_send:
        return False
    if dry_run:
        note("dry run: nothing was sent")
        return False
    if yes:
        return True
    if as_json or not sys.stdin.isatty():
        note("nothing was sent: add --yes to send without a question")
        return False
    wanted = typer.confirm(f"send {counted(plan.to_send, 'record')} to {plan.to}?", default=False)
    if not wanted:
        say("nothing was sent")
    return wanted


def _progress(total: int) -> Callable[[int], None]:
    """Tell now and then how far it is."""
    told_at = time.monotonic()

    def tell(sent: int) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= _TELL_SECONDS:
            told_at = time.monotonic()
            note(f"{sent} of {total} sent")

    return tell
