"""`tidegate history`: the offset table, runs, failures and commits over time, as runs wrote them down."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.common import (
    AsJson,
    Bootstrap,
    Client,
    chosen_cluster,
    examples,
    note,
    say,
    show_json,
    show_table,
    shown,
)
from tidegate.cli.completing import complete_group
from tidegate.errors import BrokerUnreachable, GroupMissing, SettingsError
from tidegate.history.chosen import chosen_history
from tidegate.settings import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tidegate.history.rows import CommitRow, FailureRow, OffsetRow, RunRow
    from tidegate.history.store import History

_MESSAGE_SHOWN = 80


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command(
        "history",
        short_help="Show what runs wrote down.",
        epilog=examples(
            "history",
            "history billing --failures",
        ),
    )(show_history)


def show_history(
    group: Annotated[
        str | None,
        typer.Argument(
            metavar="GROUP", help="The group. [default: list those that are known]", autocompletion=complete_group
        ),
    ] = None,
    runs: Annotated[bool, typer.Option("--runs", help="Its runs, the latest first.")] = False,
    failures: Annotated[bool, typer.Option("--failures", help="Records that failed, the latest first.")] = False,
    commits: Annotated[bool, typer.Option("--commits", help="Where it stood over time, the latest last.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many runs, failures or commits.")] = 20,
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: AsJson = False,
) -> None:
    """Show what runs wrote down: settled and requested offsets, runs, failures, commits. Kafka has the truth."""
    history = chosen_history(resolve().values.history)
    if history is None:
        raise SettingsError("there is no history: the setting history is off", "set it to sqlite, a path or a URL")
    with history:
        cluster = _cluster_id(history, bootstrap, client)
        if group is None:
            _show_groups(history, cluster, as_json=as_json)
            return
        _check_known(history, cluster, group)
        asked: dict[str, object] = {}
        if runs:
            asked["runs"] = history.runs(cluster, group, limit)
        if failures:
            asked["failures"] = history.failures(cluster, group, limit)
        if commits:
            asked["commits"] = history.commits(cluster, group, limit=limit)
        found = asked or {"offsets": history.offsets(cluster, group)}
    if as_json:
        show_json({"group": group, "cluster": cluster, **found})
        return
    for kind, rows in found.items():
        if rows:
            _TABLES[kind](rows)  # type: ignore[operator]  # each kind has its own rows
        else:
            say(f"no {kind} of {group}")


def _cluster_id(history: History, bootstrap: str | None, client: Sequence[str] | None) -> str:
    """Return whose groups are meant. Where Kafka does not answer, a history of one cluster can be read all the same."""
    try:
        return chosen_cluster(bootstrap, client).admin.cluster_id()
    except BrokerUnreachable as error:
        known = history.clusters()
        if len(known) != 1:
            raise
        note(f"{error.happened}; this is the history of the cluster {known[0]}, the only one in it")
        return known[0]


def _check_known(history: History, cluster: str, group: str) -> None:
    known = history.groups(cluster)
    if group not in known:
        close = difflib.get_close_matches(group, known, n=1)
        raise GroupMissing(
            f"the history {history.shown} knows nothing of the group {group}",
            f"did you mean {close[0]}?" if close else "see what it knows with: tidegate history",
        )


def _show_groups(history: History, cluster: str, *, as_json: bool) -> None:
    rows = []
    for group in history.groups(cluster):
        offsets = history.offsets(cluster, group)
        last = next(iter(history.runs(cluster, group, 1)), None)
        rows.append(
            {
                "group": group,
                "partitions": len(offsets),
                "requested": sum(row.is_requested for row in offsets),
                "settled_at": max((row.settled_at for row in offsets if row.settled_at is not None), default=None),
                "state": None if last is None else last.state,
                "seen_at": None if last is None else last.seen_at,
            }
        )
    if as_json:
        show_json({"cluster": cluster, "groups": rows})
    elif not rows:
        say(f"the history {history.shown} is empty: a run fills it")
    else:
        columns = ["GROUP", "PARTITIONS", "REQUESTED", "SETTLED AT", "LAST RUN", "SEEN AT"]
        show_table(columns, [[_cell(value) for value in row.values()] for row in rows])


def _show_offsets(rows: Sequence[OffsetRow]) -> None:
    show_table(
        ["TOPIC", "PARTITION", "SETTLED", "SETTLED AT", "REQUESTED", "BY", "REQUESTED AT", "STATE"],
        [
            (
                row.partition.topic,
                row.partition.number,
                row.mark,
                _time(row.settled_at),
                row.requested,
                row.requested_by or None,
                _time(row.requested_at),
                _state(row),
            )
            for row in rows
        ],
    )


def _show_runs(rows: Sequence[RunRow]) -> None:
    show_table(
        ["BEGAN AT", "SEEN AT", "ENDED AT", "STATE", "HOST", "PID", "SETTLED", "RETRIED", "DEAD", "SKIPPED", "ERROR"],
        [
            (
                _time(row.began_at),
                _time(row.seen_at),
                _time(row.ended_at),
                row.state,
                row.host,
                row.pid,
                row.counts.settled,
                row.counts.retried,
                row.counts.dead,
                row.counts.skipped,
                shown(row.error, _MESSAGE_SHOWN) or None,
            )
            for row in rows
        ],
        cut_last=True,
    )


def _show_failures(rows: Sequence[FailureRow]) -> None:
    show_table(
        ["AT", "TOPIC", "PARTITION", "OFFSET", "ATTEMPTS", "THEN", "ERROR"],
        [
            (
                _time(row.at),
                row.partition.topic,
                row.partition.number,
                row.record_offset,
                row.attempts,
                row.fate or None,
                f"{row.error_type}: {row.message}",
            )
            for row in rows
        ],
        cut_last=True,
    )


def _show_commits(rows: Sequence[CommitRow]) -> None:
    show_table(
        ["AT", "TOPIC", "PARTITION", "MARK"],
        [(_time(row.settled_at), row.partition.topic, row.partition.number, row.mark) for row in rows],
    )


_TABLES = {"offsets": _show_offsets, "runs": _show_runs, "failures": _show_failures, "commits": _show_commits}


def _state(row: OffsetRow) -> str | None:
    if row.requested is None:
        return None
    return "waiting" if row.is_requested else "applied" if row.applied_at is not None else "withdrawn"


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(sep=" ", timespec="seconds")


def _cell(value: object) -> object:
    return _time(value) if hasattr(value, "isoformat") else value  # type: ignore[arg-type]  # only times have it
