"""Names for the shell to complete: topics and groups of the cluster, if it answers at once; otherwise none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tidegate.cli.common import chosen_cluster
from tidegate.errors import TidegateError
from tidegate.ops.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWER_SECONDS = 1.0
"""Nobody waits longer for a key press; a broker that is away must cost no more than that."""


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that begin like this."""
    return _names(
        ctx, incomplete, lambda cluster: [info.name for info in cluster.admin.topics() if not info.is_internal]
    )


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the groups that begin like this."""
    return _names(ctx, incomplete, lambda cluster: list(cluster.admin.groups()))


def _names(ctx: typer.Context, incomplete: str, ask: Callable[[Cluster], list[str]]) -> list[str]:
    """Ask the cluster that the command line so far names; whatever is wrong, the shell is told nothing of it."""
    try:
        named = chosen_cluster(ctx.params.get("bootstrap"), ctx.params.get("client"))
        names = ask(Cluster(named.kafka, min(named.timeout_seconds, ANSWER_SECONDS)))
    except TidegateError:
        return []
    return sorted(name for name in names if name.startswith(incomplete))
