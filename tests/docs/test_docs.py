"""Everything that can be set, called or linked is described, and what is described exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pydantic.fields import FieldInfo

from tests.docs.pages import PAGES, ROOT, anchors, blocks, name_of, sections, text, without_code
from tidegate import errors
from tidegate.cli import app
from tidegate.engine import driver
from tidegate.settings import Settings, environment_name

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TEST_NAME = re.compile(r"\btest_\w+\b")
SHARED = "Options that several commands share"
SETTINGS_PAGES = ("docs/settings.md", "docs/settings-around.md")
"""The first has the table of all."""


# --- settings


def shown_default(field: FieldInfo) -> str:
    if field.default is None:
        return "not set"
    return f"`{field.default:g}s`" if isinstance(field.default, float) else f"`{field.default}`"


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_described_with_its_default_and_its_variable(name: str) -> None:
    page = next((page for page in SETTINGS_PAGES if name in sections(page)), None)
    assert page is not None, "it has no heading"
    link = f"#{name}" if page == SETTINGS_PAGES[0] else f"{Path(page).name}#{name}"
    rows = [line for line in text(SETTINGS_PAGES[0]).splitlines() if line.startswith(f"| [`{name}`]({link})")]
    assert len(rows) == 1
    cells = [cell.strip() for cell in rows[0].strip("|").split("|")]
    assert cells[1] == shown_default(Settings.model_fields[name])
    assert cells[3] == f"`{environment_name(name)}`"


def test_no_setting_is_described_that_does_not_exist() -> None:
    described = [name for page in SETTINGS_PAGES for name in sections(page)]
    assert sorted(described) == sorted(Settings.model_fields)


# --- commands


def commands() -> Iterator[tuple[str, Any]]:
    """Give every command by its full name; typer does not export the types of its commands."""

    def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        for child_name, child in getattr(command, "commands", {}).items():
            yield from walk(f"{name} {child_name}".strip(), child)
        if not hasattr(command, "commands"):
            yield name, command

    return walk("", typer.main.get_command(app))


COMMANDS = dict(commands())


def spellings(command: Any) -> set[str]:
    found = {word for each in command.params for word in (*each.opts, *each.secondary_opts) if word.startswith("-")}
    return found - {"-h", "--help"}


def cli_sections() -> dict[str, str]:
    """The two pages of the command line, as one."""
    return sections("docs/cli.md") | sections("docs/cli-groups.md")


def words(page: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", page))


def test_the_commands_of_the_page_are_those_of_the_program() -> None:
    families = {name.split()[0] for name in COMMANDS}
    assert families <= set(cli_sections())
    in_table = set(re.findall(r"^\| \[`(\w+)`\]", text("docs/cli.md"), re.MULTILINE))
    assert in_table == families


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_described_with_every_option(name: str) -> None:
    page = cli_sections()
    section = page[name.split(maxsplit=1)[0]]
    assert f"`{name}" in text("docs/cli.md") + text("docs/cli-groups.md")
    assert spellings(COMMANDS[name]) <= words(section) | words(page[SHARED])


@pytest.mark.parametrize("family", sorted({name.split()[0] for name in COMMANDS}))
def test_no_option_is_described_that_a_command_does_not_have(family: str) -> None:
    prose = re.sub(r"^```.*?^```$", "", cli_sections()[family], flags=re.DOTALL | re.MULTILINE)
    described = {word for code in re.findall(r"`([^`]+)`", prose) for word in words(code) if word != "-N"}
    known = {word for name, command in COMMANDS.items() if name.split()[0] == family for word in spellings(command)}
    assert described <= known


def test_global_options_are_described() -> None:
    assert spellings(typer.main.get_command(app)) <= words(sections("docs/cli.md")["Before the command"])


def test_every_exit_code_is_described() -> None:
    table = sections("docs/cli.md")["Exit codes"]
    codes = [value for name, value in vars(errors).items() if name.startswith("EXIT_")]
    assert codes
    for code in codes:
        assert f"| {code} |" in table


# --- guarantees and design


def test_the_steps_of_a_commit_have_the_numbers_of_the_code() -> None:
    in_code = sorted(set(re.findall(r"\((\d)\)", driver.__doc__ or "")))
    guarantees = sections("docs/guarantees.md")
    on_page = re.findall(r"^(\d)\. \*\*", guarantees["The steps of a commit"], re.MULTILINE)
    assert in_code == on_page
    for number in in_code:
        assert TEST_NAME.search(guarantees[f"If it dies after step {number}"]), f"step {number} names no test"


@pytest.mark.parametrize("page", [page for page in PAGES if "how-to" not in page.parts], ids=name_of)
def test_every_test_that_is_named_exists(page: Path) -> None:
    files = [*(ROOT / "tests").rglob("test_*.py")]
    known = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))}
    named = set(TEST_NAME.findall(page.read_text(encoding="utf-8"))) - {file.stem for file in files}
    assert named <= known


def test_the_design_names_every_module_and_no_other() -> None:
    source = ROOT / "src" / "tidegate"
    packages = {path for path in source.rglob("__init__.py") if path.parent != source}
    modules = {str(path.relative_to(source)) for path in source.rglob("*.py") if path not in packages}
    rows = [line.split("|")[1] for line in sections("DESIGN.md")["Files"].splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`([\w/]+\.py)`", row)]
    assert sorted(named) == sorted(modules)


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", text("Makefile"), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"(?:`|^)make ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert named <= targets, name_of(page)


# --- every page


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(without_code(name_of(page))):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_python_block_compiles(page: Path) -> None:
    for number, code in enumerate(blocks(name_of(page), "python"), 1):
        compile(code, f"{name_of(page)}, block {number}", "exec", dont_inherit=True)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_page_is_short(page: Path) -> None:
    lines = len(page.read_text(encoding="utf-8").splitlines())
    assert lines <= (120 if page.name == "README.md" else 150)


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = set(LINK.findall(text("docs/decisions/README.md")))
    assert listed == {page.name for page in folder.glob("*.md")} - {"README.md"}
    for name in listed:
        assert {"Context", "Decision"} <= set(sections(f"docs/decisions/{name}")), name
