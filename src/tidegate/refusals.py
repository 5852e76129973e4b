"""Pure: what a pipeline cannot be built from, refused where it is written, with the cure."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterable

from tidegate.errors import SettingsError
from tidegate.names import is_topic_name
from tidegate.places import At
from tidegate.steps import name_of


def topic_names(topics: str | Iterable[str] | re.Pattern[str] | At) -> tuple[str, ...]:
    """Return the topics that are given by name."""
    if isinstance(topics, re.Pattern):
        if not isinstance(topics.pattern, str):
            raise SettingsError("the pattern is made of bytes", 'compile text: re.compile(r"orders-.*")')
        return ()
    if isinstance(topics, At):
        return topics.topics
    given: object = topics  # whatever the annotation says: people pass numbers and None
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    if not names or any(name in ("", None) for name in names):
        raise SettingsError("from_kafka has no topic", 'name one: from_kafka("orders", group="billing")')
    if len(set(names)) != len(names):
        raise SettingsError(f"a topic is named twice in {list(names)}", "name each once")
    for name in names:
        _refuse_topic(name)
    return names


def _refuse_topic(name: object) -> None:
    """Refuse what can be no topic's name: Kafka would only say that it does not exist."""
    if isinstance(name, str) and is_topic_name(name):
        return
    if isinstance(name, str) and name.startswith("^"):
        cure = f"for a pattern pass re.compile(r{name.removeprefix('^')!r})"
    elif isinstance(name, str) and len(several := [one for one in re.split(r"[\s,;]+", name) if one]) > 1:
        cure = f"for several topics pass a list: {several}"
    else:
        cure = "name it by text of letters, digits, dots, dashes and underscores"
    raise SettingsError(f"{name!r} is no topic's name", cure)


def refuse_group(group: object) -> None:
    """Refuse what can be no group's name."""
    if group is None or group == "":
        raise SettingsError("from_kafka has no group", 'name one: from_kafka("orders", group="billing")')
    if not isinstance(group, str) or group != group.strip():
        raise SettingsError(
            f"group={group!r} is no group's name", 'name it by text without spaces around it: group="billing"'
        )


def refuse_generator(what: str, function: object) -> None:
    """Calling a generator function runs none of it: the record would count as settled, and nothing be done."""
    called = function if callable(function) else getattr(function, "write", None)
    if called is None:
        return
    inner = called
    while isinstance(inner, functools.partial):
        inner = inner.func
    asked = (inner, type(inner).__call__) if callable(inner) else (inner,)
    if any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in asked):
        raise SettingsError(
            f"{what}({name_of(called)}) has a yield, so calling it does nothing",
            "remove the yield; to make several values of one, use flat_map before",
        )


def refuse_uncallable(what: str, function: object) -> None:
    """Refuse what is no function."""
    if not callable(function):
        raise SettingsError(f"{what}({function!r}) is not callable", "pass a function")
