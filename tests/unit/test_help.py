"""What the command line says of itself: help with examples, versions, completion, colours only where they are seen."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest
import typer.main
from typer.testing import CliRunner

from tidegate.cli import app
from tidegate.cli.common import show_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TERMINAL_COLUMNS = 80


def commands() -> Iterator[tuple[str, Any]]:
    """Give every command and family by its full name; the first one is the program itself."""

    def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield name, command
        for child_name, child in getattr(command, "commands", {}).items():
            yield from walk(f"{name} {child_name}".strip(), child)

    return walk("", typer.main.get_command(app))


COMMANDS = dict(commands())


def help_of(name: str) -> str:
    shown = CliRunner().invoke(
        app, [*name.split(), "--help"], env={"COLUMNS": str(TERMINAL_COLUMNS)}, prog_name="tidegate"
    )
    assert shown.exit_code == 0
    return shown.stdout


def examples_in(shown: str) -> list[str]:
    _, _, below = shown.partition("For example:\n")
    return [line.strip() for line in below.splitlines() if line.strip()]


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if not hasattr(command, "commands")])
def test_the_help_of_every_command_shows_how_to_call_it(name: str) -> None:
    shown = examples_in(help_of(name))
    assert shown
    for line in shown:
        program, *words = shlex.split(line.partition(" <")[0], comments=True)
        assert program == "tidegate"
        assert " ".join(words).startswith(name)
        options = {word for word in words if re.match(r"--?[a-zA-Z]", word)}
        known = {word for each in COMMANDS[name].params for word in (*each.opts, *each.secondary_opts)}
        assert options <= known, "the example uses an option that the command does not have"


def test_the_help_of_the_program_shows_how_to_begin() -> None:
    assert any("tidegate run app.py" in line for line in examples_in(help_of("")))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_fits_a_terminal_and_is_plain_text(name: str) -> None:
    shown = help_of(name)
    assert max(map(len, shown.splitlines())) <= TERMINAL_COLUMNS
    assert "\x1b" not in shown
    assert not re.search(r"^ .*\.\.\.$", shown, re.MULTILINE), "a command's short description is cut off"


def test_the_version_names_everything_that_a_report_needs() -> None:
    shown = CliRunner().invoke(app, ["--version"])
    assert shown.exit_code == 0
    first, python, pyspark, kafka, java = shown.stdout.splitlines()
    assert re.fullmatch(r"tidegate \d+\.\d+\.\d+\S*", first)
    assert re.fullmatch(r"Python 3\.\d+\.\d+\S* \(.+\)", python)
    assert re.fullmatch(r"PySpark \d+\.\d+\.\d+\S*", pyspark)
    assert re.fullmatch(r"confluent-kafka \d+\.\d+\.\d+ \(librdkafka \d+\.\d+\.\d+\S*\)", kafka)
    assert re.match(r"Java", java)


def test_the_version_says_that_there_is_no_java_and_does_not_fail() -> None:
    shown = CliRunner().invoke(app, ["--version"], env={"JAVA_HOME": "/nowhere"})
    assert shown.exit_code == 0
    assert "Java: JAVA_HOME=/nowhere holds no Java that runs" in shown.stdout


# --- completion


def completed(line: str, **variables: str) -> list[str]:
    """Return what bash would offer behind this line."""
    environment = {
        "_TIDEGATE_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        **variables,
    }
    shown = CliRunner().invoke(app, [], env=environment, prog_name="tidegate")
    assert shown.exit_code == 0
    assert shown.stderr == ""
    return shown.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tidegate to", ["topics"]),
        ("tidegate topics de", ["delete"]),
        ("tidegate run app.py --lo", ["--log-format"]),
        ("tidegate dead redrive billing --dr", ["--dry-run"]),
    ],
)
def test_commands_and_options_are_completed(line: str, offered: list[str]) -> None:
    assert completed(line) == offered


@pytest.mark.parametrize("line", ["tidegate lag bil", "tidegate tail ord", "tidegate watch --topic ord"])
@pytest.mark.parametrize(
    "variables",
    [{"TIDEGATE_BOOTSTRAP": "127.0.0.1:1", "TIDEGATE_BROKER_TIMEOUT": "200ms"}, {"TIDEGATE_NO_SUCH_SETTING": "1"}],
    ids=["no broker", "wrong settings"],
)
def test_names_are_not_completed_where_nobody_can_be_asked_and_the_shell_hears_nothing_of_it(
    line: str, variables: dict[str, str]
) -> None:
    assert completed(line, **variables) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_the_shell_is_shown(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda: (shell, f"/bin/{shell}"))
    shown = CliRunner().invoke(app, ["--show-completion"], prog_name="tidegate")
    assert shown.exit_code == 0
    assert f"_TIDEGATE_COMPLETE=complete_{shell}" in shown.stdout


def test_completion_is_installed_where_the_shell_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    done = CliRunner().invoke(app, ["--install-completion"], prog_name="tidegate")
    assert done.exit_code == 0
    script = tmp_path / ".bash_completions" / "tidegate.sh"
    assert "_TIDEGATE_COMPLETE=complete_bash" in script.read_text(encoding="utf-8")
    assert str(script) in (tmp_path / ".bashrc").read_text(encoding="utf-8")


# --- colours


@pytest.mark.parametrize(
    ("terminal", "no_colour", "begins"),
    [(True, "", "\x1b[31mstalled"), (True, "1", "stalled"), (False, "", "stalled")],
    ids=["a terminal", "NO_COLOR", "a pipe"],
)
def test_colours_are_only_for_terminals_that_want_them(
    terminal: bool,
    no_colour: str,
    begins: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_colour)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    show_table(["VERDICT", "GROUP"], [("stalled", "billing")])
    heading, row = capsys.readouterr().out.splitlines()
    assert row.startswith(begins)
    assert ("\x1b" in heading) is terminal
