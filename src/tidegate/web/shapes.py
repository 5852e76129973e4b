"""The shapes of answers for the OpenAPI document, made from the frozen objects themselves.

They say what `ops/plain.py` makes of an object, so the document cannot drift away from the answers.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from itertools import pairwise
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from tidegate.copies import Headers, Past
from tidegate.kafka.admin import GroupMember
from tidegate.records import Counts, Failure, Partition


class PartitionShape(BaseModel):
    """One partition of a topic."""

    topic: str
    partition: int


class NoText(BaseModel):
    """Bytes that are no text."""

    base64: str


# What the modules of these objects import for the type checker alone.
_NAMES: dict[str, Any] = {
    each.__name__: each for each in (datetime, Partition, GroupMember, Past, Counts, Failure, Mapping)
} | {"Headers": Headers}


@cache
def shape_of(kind: type) -> type[BaseModel]:
    """Return the shape of a frozen object as JSON."""
    hints = get_type_hints(kind, localns={**vars(sys.modules[kind.__module__]), **_NAMES})
    told = _told(kind)
    members: dict[str, Any] = {}
    for each in fields(kind):
        if hints[each.name] is Partition:
            members |= {"topic": (str, ...), "partition": (int, ...)}
        else:
            members[each.name] = (_shape(hints[each.name]), Field(..., description=told.get(each.name)))
    made: type[BaseModel] = create_model(
        kind.__name__, __config__=ConfigDict(extra="forbid"), __doc__=inspect.getdoc(kind), **members
    )
    return made


def _shape(hint: Any) -> Any:  # noqa: PLR0911  # one line per kind of type
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Partition:
        return PartitionShape
    if hint is bytes:
        return str | NoText
    if isinstance(hint, type) and is_dataclass(hint):
        return shape_of(hint)
    if origin in (Union, types.UnionType):
        return Union[tuple(_shape(one) for one in inner)]  # noqa: UP007  # made of a list, not written down
    if origin is tuple:
        one_of: Any = Union[tuple(_shape(one) for one in inner if one is not Ellipsis)]  # noqa: UP007  # as above
        return list[one_of]
    if origin in (dict, Mapping):
        return dict[str, _shape(inner[1])]  # type: ignore[misc]  # a type that is made, not written down
    return hint


def _told(kind: type) -> dict[str, str]:
    """Return what the source says below each field."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):  # installed without sources
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for field, text in pairwise(body):
        is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            found[field.target.id] = inspect.cleandoc(str(text.value.value))  # type: ignore[attr-defined]  # is_text
    return found
