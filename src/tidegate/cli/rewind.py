"""`tidegate rewind`: move a group, after showing what that does."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tidegate.cli.common import AsJson, Bootstrap, Client, chosen_cluster, examples, note, say, show_json, show_table
from tidegate.cli.completing import complete_group, complete_topic
from tidegate.errors import EXIT_USAGE
from tidegate.ops.reach import chosen_reach
from tidegate.ops.rewind import RewindPlan, carry_out, plan_rewind
from tidegate.records import counted


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command(
        "rewind",
        short_help="Move a group to other offsets.",
        epilog=examples(
            "rewind billing --to -1000 --dry-run",
            "rewind billing --topic orders --to 2026-11-16T08:00Z",
        ),
    )(rewind)


def rewind(
    group: Annotated[
        str, typer.Argument(metavar="GROUP", help="The consumer group; any client's.", autocompletion=complete_group)
    ],
    to: Annotated[
        str,
        typer.Option(metavar="PLACE", help="beginning, end, an offset, a time (2026-11-16T08:00Z), or -1000 / +1000."),
    ],
    topic: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            help="This topic. [default: all that the group has commits for]",
            autocompletion=complete_topic,
        ),
    ] = None,
    partition: Annotated[int | None, typer.Option(help="This partition of the topic.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: AsJson = False,
) -> None:
    """Move a group to other offsets: show the plan, ask, do it, read it back.

    Other groups stay where they are. Only records that are still retained can be had again. A running pipeline that
    writes the same history rewinds itself; a group with any other member is refused.
    """
    admin = chosen_cluster(bootstrap, client).admin
    reach = chosen_reach()
    plan = plan_rewind(admin, group, to, topic, partition, reach)
    if not as_json:
        _show(plan)
    if not dry_run:
        if not yes and not _is_meant(plan):
            raise typer.Exit(EXIT_USAGE)
        plan = carry_out(admin, plan, reach, (lambda _: None) if as_json else note)
    if as_json:
        show_json(plan)
    elif plan.is_done:
        moved = "goes on from there" if plan.members else "stands there now"
        say(f"group {group} {moved}, read back from the broker")
    else:
        say("a dry run: nothing was moved")


def _show(plan: RewindPlan) -> None:
    show_table(
        ["TOPIC", "PARTITION", "MARK", "TO", "AGAIN", "PASSED", "OUT OF LOG"],
        [
            (
                move.partition.topic,
                move.partition.number,
                move.mark,
                move.to,
                move.again,
                move.passed,
                move.out_of_log,
            )
            for move in plan.moves
        ],
    )
    again, passed = sum(one.again for one in plan.moves), sum(one.passed for one in plan.moves)
    say(f"{counted(again, 'record')} at most run again, {counted(passed, 'record')} at most are passed by for good")
    if any(one.out_of_log for one in plan.moves):
        note("some of what was asked for is not in the log: the move ends at its border")
    if plan.members:
        note(f"the group is running: {counted(plan.members, 'member')} will be asked to rewind")
    if plan.waiting:
        note(f"not touched, and will still run: {counted(plan.waiting, 'record')} in the group's retry topics")


def _is_meant(plan: RewindPlan) -> bool:
    if not sys.stdin.isatty():
        note("nobody is there to be asked: say --yes to do it, or --dry-run to look")
        return False
    return typer.confirm(f"Move group {plan.group}?")
