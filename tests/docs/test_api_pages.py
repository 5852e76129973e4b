"""The pages of the Python interface name every public name, with the signature that it has, and nothing else."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from typing import Any

import pytest

import tidegate as tg
from tests.docs.pages import text

BOTH = text("docs/api.md") + text("docs/api-operations.md")
ANY_DEFAULT = "..."
"""A default that is made anew for each object has no text of its own."""


def rows() -> list[str]:
    """The first cell of every row, without the headings, and the sentences that introduce a class."""
    cells = re.findall(r"^\| (`(?:tg|Pipeline|Control)\.[^|]*`) \|", BOTH, re.MULTILINE)
    openings = re.findall(r"^(`tg\.\w+\([^`]*\)`) is ", BOTH, re.MULTILINE)
    return [code for cell in [*cells, *openings] for code in re.findall(r"`([^`]+)`", cell)]


ROWS = rows()
CALLS = [row for row in ROWS if row.endswith(")")]


def meant(name: str) -> Any:
    found: Any = tg
    for part in name.removeprefix("tg.").split("."):
        found = getattr(found, part)
    return found


def test_every_public_name_has_one_row() -> None:
    described = [row.partition("(")[0].removeprefix("tg.") for row in ROWS if row.startswith("tg.")]
    assert sorted(described) == sorted(tg.__all__)


@pytest.mark.parametrize("owner", [tg.Pipeline, tg.Control], ids=lambda one: one.__name__)
def test_every_method_has_a_row(owner: type) -> None:
    # What the run itself calls on its control, and what users read from a pipeline as its fields.
    not_for_users = {"attach", "publish", "detach"} | {one.name for one in dataclasses.fields(tg.Pipeline)}
    methods = {name for name in vars(owner) if not name.startswith("_")} - not_for_users
    described = {row.partition("(")[0].partition(".")[2] for row in ROWS if row.startswith(f"{owner.__name__}.")}
    assert described == methods


@pytest.mark.parametrize("row", CALLS)
def test_every_signature_is_that_of_the_code(row: str) -> None:
    name, _, rest = row.partition("(")
    target = meant(name)
    if isinstance(target, type) and "__init__" not in vars(target) and not dataclasses.is_dataclass(target):
        assert rest == ")", "an exception without arguments of its own"
        return
    written = ast.parse(f"def written({rest[:-1]}): ...").body[0]
    assert isinstance(written, ast.FunctionDef)
    assert as_written(written.args) == as_it_is(target)


def as_written(args: ast.arguments) -> list[tuple[str, str, str | None]]:
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + [ast.unparse(one) for one in args.defaults]
    found = [("plain", one.arg, default) for one, default in zip(plain, defaults, strict=True)]
    if args.vararg:
        found.append(("many", args.vararg.arg, None))
    keywords = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    return found + [
        ("keyword", one.arg, None if default is None else ast.unparse(default)) for one, default in keywords
    ]


def as_it_is(target: Any) -> list[tuple[str, str, str | None]]:
    kinds: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "many", inspect.Parameter.KEYWORD_ONLY: "keyword"}
    found = []
    for one in inspect.signature(target).parameters.values():
        if one.name == "self":
            continue
        shown = ANY_DEFAULT if "factory" in repr(one.default) or one.default == () else repr(one.default)
        default = None if one.default is inspect.Parameter.empty else shown
        found.append((kinds.get(one.kind, "plain"), one.name, default))
    return found


@pytest.mark.parametrize("row", re.findall(r"^\| `tg\.\w+` \| .*$", BOTH, re.MULTILINE))
def test_every_field_is_named_and_no_other(row: str) -> None:
    name, words = row.split("|")[1].strip(" `"), row.split("|")[2]
    target = meant(name)
    if issubclass(target, Exception):
        return
    has = inspect.get_annotations(target) if not hasattr(target, "_fields") else dict.fromkeys(target._fields)
    properties = {key for key, value in vars(target).items() if isinstance(value, property)}
    named = set(re.findall(r"`(\w+)`", words))
    assert set(has) <= named <= set(has) | properties
