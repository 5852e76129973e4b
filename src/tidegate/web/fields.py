"""What requests may carry: every text, number and page is bounded."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from tidegate.web.letters import MOST_LETTERS

_MOST_OFFSET = 2**63 - 1
_MOST_PARTITION = 2**31 - 1
# Whatever a client may be called, no name has these; they would also break lines of logs.
_NO_CONTROLS = r"^[^\x00-\x1f\x7f]*$"
MOST_REDRIVEN = 10_000

GroupName = Annotated[
    str, Path(min_length=1, max_length=255, pattern=_NO_CONTROLS, description="The consumer group; any client's.")
]
TopicName = Annotated[str, Field(min_length=1, max_length=249, pattern=r"^[A-Za-z0-9._-]+$")]
PartitionNumber = Annotated[int, Field(ge=0, le=_MOST_PARTITION)]
RecordOffset = Annotated[int, Field(ge=0, le=_MOST_OFFSET)]
Text = Annotated[str, Field(max_length=500, pattern=_NO_CONTROLS)]
When = Annotated[str, Field(max_length=50, pattern=_NO_CONTROLS)]
Fingerprint = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]

NameQuery = Annotated[
    str | None, Query(max_length=255, pattern=_NO_CONTROLS, description="Only those with this in their names.")
]
AfterQuery = Annotated[
    str | None, Query(max_length=255, pattern=_NO_CONTROLS, description="What the page before gave as `next`.")
]
TopicQuery = Annotated[str | None, Query(min_length=1, max_length=249, pattern=r"^[A-Za-z0-9._-]+$")]
PartitionQuery = Annotated[int | None, Query(ge=0, le=_MOST_PARTITION)]
LimitQuery = Annotated[int, Query(ge=1, le=1000)]
LettersQuery = Annotated[int, Query(ge=1, le=MOST_LETTERS)]
TextQuery = Annotated[str | None, Query(max_length=500, pattern=_NO_CONTROLS)]
WhenQuery = Annotated[
    str | None,
    Query(max_length=50, pattern=_NO_CONTROLS, description="A time, 2026-01-31T12:00Z; or how long ago, 2h."),
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    dry_run: Annotated[bool, Field(strict=True)] = True
    """Only show what would be done."""
    fingerprint: Fingerprint | None = None
    """Of the plan that was shown; needed to carry it out."""


class RewindBody(_Body):
    """Where a group is to go."""

    to: Annotated[str, Field(min_length=1, max_length=50, pattern=_NO_CONTROLS)]
    """beginning, end, an offset, a time (2026-11-16T08:00:00Z), or a shift (-1000, +1000)."""
    topic: TopicName | None = None
    partition: PartitionNumber | None = None


class RedriveBody(_Body):
    """Which dead letters are to be sent back."""

    origin: Text | None = None
    error: Text | None = None
    since: When | None = None
    until: When | None = None
    key: Text | None = None
    partition: PartitionNumber | None = None
    """With `offset`: the one letter in this place of the dead letters."""
    offset: RecordOffset | None = None
    limit: Annotated[int, Field(ge=1, le=MOST_REDRIVEN)] = 1000
    again: Annotated[bool, Field(strict=True)] = False
    most_redrives: Annotated[int, Field(ge=1, le=1000)] = 3
