"""`tidegate watch`: commits as they happen, of any group."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.common import AsJson, Bootstrap, Client, chosen_cluster, examples, note, safe, say, show_json
from tidegate.cli.completing import complete_group, complete_topic
from tidegate.kafka.commits import watch_commits
from tidegate.ledger import decode_any
from tidegate.records import moment

if TYPE_CHECKING:
    from tidegate.kafka.commits import CommitSeen
    from tidegate.records import Partition


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command(
        "watch",
        short_help="Show commits of any group as they happen.",
        epilog=examples(
            "watch",
            "watch billing --topic orders",
            "watch --from-beginning --until-end --json",
        ),
    )(watch)


def watch(
    group: Annotated[
        str | None,
        typer.Argument(metavar="GROUP", help="This group alone. [default: all]", autocompletion=complete_group),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Commits for this topic alone.", autocompletion=complete_topic)
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Begin with the commits that Kafka still has.")
    ] = False,
    until_end: Annotated[bool, typer.Option("--until-end", help="End where the commits end now.")] = False,
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: AsJson = False,
) -> None:
    """Show commits as they happen, read from Kafka's own topic: any group's, whatever client it uses.

    Joins no group and changes nothing. Ctrl-C ends it.
    """
    cluster = chosen_cluster(bootstrap, client)
    if not as_json and not until_end:
        note("waiting for commits; Ctrl-C ends it")
    before: dict[tuple[str, Partition], int] = {}
    seen = watch_commits(
        cluster.kafka,
        group,
        from_beginning=from_beginning,
        stop_at_end=until_end,
        timeout_seconds=cluster.timeout_seconds,
    )
    with suppress(KeyboardInterrupt):
        for commit in seen:
            if commit is None or topic not in (None, commit.partition.topic):
                continue
            if as_json:
                show_json(commit)
            else:
                say(_line(commit, before.get((commit.group, commit.partition))))
            if commit.mark is not None:
                before[commit.group, commit.partition] = commit.mark


def _line(commit: CommitSeen, before: int | None) -> str:
    when = moment(commit.committed_at_ms) if commit.committed_at_ms >= 0 else None
    shown = "-" if when is None else when.strftime("%H:%M:%S.%f")[:-3]
    place = f"{shown}  {safe(commit.group)}  {safe(str(commit.partition))}"
    if commit.mark is None:
        return f"{place}  deleted or expired"
    step = "" if before is None else f"  ({commit.mark - before:+d})"
    return f"{place}  {commit.mark}{step}{_ahead(commit, commit.mark)}"


def _ahead(commit: CommitSeen, mark: int) -> str:
    """Say what Tidegate stored beside the mark, or show what somebody else did."""
    stored = decode_any(commit.group, commit.partition, mark, commit.metadata)
    if stored.topic_id is None:
        return f"  {safe(commit.metadata)}" if commit.metadata else ""
    count = sum(end - first for first, end in stored.position.ahead)
    return f"  {count} settled ahead" if count else ""
