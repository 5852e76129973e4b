"""`tidegate topics`: list, create, show and delete."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.common import AsJson, Bootstrap, Client, chosen_cluster, examples, pairs, say, show_json, show_table
from tidegate.cli.completing import complete_topic

family = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, create, show and delete topics.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.", autocompletion=complete_topic)]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(family, name="topics")


@family.command(
    "list",
    short_help="Show every topic.",
    epilog=examples(
        "topics list",
        "topics list --internal --json",
    ),
)
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Kafka's own topics too.")] = False,
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: AsJson = False,
) -> None:
    """Show every topic."""
    found = chosen_cluster(bootstrap, client).admin.topics()
    shown = [info for info in found if internal or not info.is_internal]
    if as_json:
        show_json(shown)
    elif shown:
        show_table(
            ["TOPIC", "PARTITIONS", "REPLICATION", "ID"],
            [(info.name, info.partitions, info.replication, info.topic_id) for info in shown],
        )
    else:
        say("no topics yet; make one with: tidegate topics create NAME")


@family.command(
    "create",
    short_help="Create a topic.",
    epilog=examples(
        "topics create orders --partitions 4",
        "topics create sessions -c cleanup.policy=compact",
    ),
)
def create_topic(
    name: NewName,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="How many partitions.")] = 1,
    replication: Annotated[int, typer.Option(help="Copies of each partition; -1 is the broker's default.")] = -1,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="NAME=VALUE", help="A setting of the topic. Repeat it for more."),
    ] = None,
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""
    admin = chosen_cluster(bootstrap, client).admin
    admin.create_topic(name, partitions, dict(pairs(config or (), "--config")), replication)
    if as_json:
        show_json(admin.describe([name])[name])
    else:
        say(f"created {name} with {partitions} partition{'' if partitions == 1 else 's'}")


@family.command(
    "show",
    short_help="Show partitions and their offsets.",
    epilog=examples(
        "topics show orders",
    ),
)
def show_topic(name: Name, bootstrap: Bootstrap = None, client: Client = None, as_json: AsJson = False) -> None:
    """Show a topic's partitions, with the first and the next offset of each."""
    admin = chosen_cluster(bootstrap, client).admin
    info = admin.describe([name])[name]
    places = info.each_partition()
    beginnings, ends = admin.beginnings(places), admin.ends(places)
    rows = [{"partition": at.number, "beginning": beginnings[at], "end_offset": ends[at]} for at in places]
    if as_json:
        show_json(
            {
                "name": info.name,
                "topic_id": info.topic_id,
                "replication": info.replication,
                "is_internal": info.is_internal,
                "partitions": rows,
            }
        )
        return
    say(f"{info.name}  id {info.topic_id}  replication {info.replication}")
    show_table(["PARTITION", "BEGINNING", "END"], [tuple(row.values()) for row in rows])


@family.command(
    "delete",
    short_help="Delete a topic with all its records.",
    epilog=examples(
        "topics delete orders",
    ),
)
def delete_topic(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = None,
    client: Client = None,
) -> None:
    """Delete a topic with all its records."""
    admin = chosen_cluster(bootstrap, client).admin
    info = admin.describe([name])[name]
    places = info.each_partition()
    beginnings, ends = admin.beginnings(places), admin.ends(places)
    held = sum(ends[at] - beginnings[at] for at in places)
    if not yes:
        typer.confirm(f"Delete {name} with about {held} records? They cannot be brought back.", abort=True)
    admin.delete_topic(name)
    say(f"deleted {name}")
