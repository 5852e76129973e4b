"""`tidegate offsets`: where a group stands."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.common import (
    AsJson,
    Bootstrap,
    Client,
    chosen_cluster,
    examples,
    missing_group,
    say,
    show_json,
    show_table,
)
from tidegate.cli.completing import complete_group
from tidegate.ops.offsets import load_offsets


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command(
        "offsets",
        short_help="Show where a group stands, per partition.",
        epilog=examples(
            "offsets billing",
        ),
    )(show_offsets)


def show_offsets(
    group: Annotated[
        str, typer.Argument(metavar="GROUP", help="The consumer group; any client's.", autocompletion=complete_group)
    ],
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: AsJson = False,
) -> None:
    """Show a group's mark, the log's ends and the lag, per partition."""
    admin = chosen_cluster(bootstrap, client).admin
    found = load_offsets(admin, group)
    if found.state == "dead" and not found.partitions:
        raise missing_group(admin, group)
    if as_json:
        show_json(found)
        return
    members = len(found.members)
    say(f"{found.group}  {found.state}  {members} member{'' if members == 1 else 's'}  lag {found.lag}")
    if found.partitions:
        show_table(
            ["TOPIC", "PARTITION", "MARK", "BEGINNING", "END", "LAG", "LOST", "MEMBER", "METADATA"],
            [
                (
                    each.partition.topic,
                    each.partition.number,
                    each.mark,
                    each.beginning,
                    each.end_offset,
                    each.lag,
                    each.lost,
                    each.member,
                    each.metadata or None,
                )
                for each in found.partitions
            ],
        )
