"""Commands as they stand on pages, parsed by what would run them, and not run."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from typing import Any

import typer.main

from tests.docs.pages import text
from tidegate.cli import app

OTHER_TOOLS = {"curl", "docker", "journalctl", "kubectl", "promtool", "python", "sudo", "systemctl", "tar", "useradd"}
"""Programs of others that pages may call: nothing of ours can be wrong in them."""
SUBMIT_OPTIONS = {"--master", "--name", "--conf", "--py-files", "--archives"}
"""Those of Spark's command that the tests on a cluster use."""
ENDS_OF_COMMANDS = {"|", "&&", "||", ";", "&"}


def commands(script: str) -> Iterator[list[str]]:
    """Give each command of a script as a list of words, without comments, redirections and variables that are set."""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word in ENDS_OF_COMMANDS:
                yield from _one(words)
                words = []
            else:
                words.append(word)


def _one(words: list[str]) -> Iterator[list[str]]:
    kept: list[str] = []
    for word in words:
        if kept and kept[-1] in ("<", ">", ">>"):
            kept.pop()
        elif kept or not re.match(r"\w+=", word):
            kept.append(word)
    if kept and kept[0] != "export":
        yield kept


def check(words: list[str]) -> None:
    """Fail where a command, an option, an extra or a target does not exist."""
    program, *rest = words
    if program.rpartition("/")[2] == "tidegate":
        parse(rest)
    elif program == "pip":
        for extras in re.findall(r"\[([\w,]+)\]", " ".join(rest)):
            known = tomllib.loads(text("pyproject.toml"))["project"]["optional-dependencies"]
            assert set(extras.split(",")) <= set(known), extras
    elif program == "make":
        assert set(rest) <= set(re.findall(r"^([a-z]+):", text("Makefile"), re.MULTILINE)), rest
    elif program == "spark-submit":
        assert rest[-1].endswith(".py"), rest
        assert {word for word in rest if word.startswith("-")} <= SUBMIT_OPTIONS, rest
    else:
        assert program in OTHER_TOOLS, f"{program}: no checker knows this command"


def parse(words: list[str]) -> None:
    """Let the program itself read its command line, up to the point where it would begin to work."""
    command: Any = typer.main.get_command(app)
    name = "tidegate"
    while hasattr(command, "commands"):
        context = command.make_context(name, list(words))
        name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
    command.make_context(name, list(words))
