"""Log lines as JSON: one object per line, with what is known of the record and the run."""

from __future__ import annotations

import json
import logging
import sys
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from tidegate.logs import JsonLines, WorkerLog, during_run, log_to_stderr, tell
from tidegate.settings import early_setting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUN = {"group": "billing", "run": "r1"}


@contextmanager
def as_a_new_process() -> Iterator[logging.Logger]:
    """The root logger without handlers; pytest puts its own there for every test."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    logger.handlers[:] = []
    try:
        yield logger
    finally:
        logger.handlers[:] = handlers
        logger.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_says_when_how_grave_who_and_what(capsys: pytest.CaptureFixture[str]) -> None:
    with as_a_new_process() as root:
        log_to_stderr("json")
        logging.getLogger("shop").warning("%d orders\nwait", 3)
        [line] = lines(capsys)
        assert list(line) == ["time", "level", "logger", "message"]
        assert (line["level"], line["logger"], line["message"]) == ("WARNING", "shop", "3 orders\nwait")
        moment = datetime.fromisoformat(line["time"])
        assert moment.utcoffset() is not None
        assert abs(datetime.now(moment.tzinfo).timestamp() - moment.timestamp()) < 60
        assert root.level == logging.INFO


def test_fields_are_added_and_none_hides_what_every_line_has(capsys: pytest.CaptureFixture[str]) -> None:
    with as_a_new_process():
        log_to_stderr("json")
        extra = {"customer": 7, "level": "mine", "time": "mine", "what": object, "bad": "\udcff"}
        logging.getLogger("shop").error("sent", extra=extra)
        [line] = lines(capsys)
        assert (line["customer"], line["level"]) == (7, "ERROR")
        assert line["time"] != "mine"
        assert line["what"] == str(object), "what JSON cannot hold comes as text"


def test_a_trace_is_text_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    with as_a_new_process():
        log_to_stderr("json")
        try:
            int("x")
        except ValueError:
            logging.getLogger("shop").exception("failed")
        logging.getLogger("shop").error("failed elsewhere", extra={"trace": "Traceback of a worker"})
        here, there = lines(capsys)
        assert here["exception"].startswith("Traceback (most recent call last):")
        assert here["exception"].endswith("invalid literal for int() with base 10: 'x'")
        assert there["exception"] == "Traceback of a worker"
        assert "trace" not in there


def test_lines_of_a_run_name_it_and_those_of_two_runs_name_none(capsys: pytest.CaptureFixture[str]) -> None:
    with as_a_new_process():
        logger = logging.getLogger("shop")
        with during_run("json", RUN):
            logger.info("one")
            with during_run("json", {"group": "refunds", "run": "r2"}):
                logger.info("two")
            logger.info("one again")
        logger.info("none")
        assert [line.get("group") for line in lines(capsys)] == ["billing", None, "billing", None]


def test_what_a_line_says_of_itself_is_nearer_than_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    with as_a_new_process():
        with during_run("json", RUN):
            logging.getLogger("shop").info("x", extra={"group": "other", "partition": 4})
        [line] = lines(capsys)
        assert (line["group"], line["run"], line["partition"]) == ("other", "r1", 4)


def test_sentences_for_people_are_lines_too_where_json_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    with as_a_new_process():
        assert not tell("as text"), "whoever says it prints it"
        log_to_stderr("json")
        assert tell("as JSON", level=logging.ERROR, fields={"exit_code": 1})
        [line] = lines(capsys)
        assert (line["message"], line["level"], line["logger"], line["exit_code"]) == (
            "as JSON",
            "ERROR",
            "tidegate",
            1,
        )


def test_a_program_that_has_chosen_where_its_lines_go_keeps_its_choice() -> None:
    with as_a_new_process() as root:
        theirs = logging.StreamHandler(sys.stdout)
        root.addHandler(theirs)
        log_to_stderr("json")
        with during_run("json", RUN):
            WorkerLog(logging.INFO, "json", RUN).begin()
        assert root.handlers == [theirs]
        assert not isinstance(theirs.formatter, JsonLines)


def test_a_worker_takes_the_format_and_the_run_of_each_job(capsys: pytest.CaptureFixture[str]) -> None:
    with as_a_new_process() as root:
        logger = logging.getLogger("shop")
        WorkerLog(logging.INFO, "text", RUN).begin()
        logger.info("first")
        WorkerLog(logging.INFO, "json", RUN).begin()
        logger.info("second")
        WorkerLog(logging.INFO, "json", {"group": "refunds", "run": "r2"}).begin()
        logger.info("third")
        first, *others = capsys.readouterr().err.splitlines()
        assert first == "INFO shop: first"
        assert [json.loads(line)["group"] for line in others] == ["billing", "refunds"]
        assert len(root.handlers) == 1


EARLY = [
    # argument  environment  file     chosen
    (None, None, None, "text"),
    (None, None, "json", "json"),
    (None, "text", "json", "text"),
    ("json", "text", None, "json"),
    (None, "yaml", None, "text"),  # refused with all the others, in one sentence
]


@pytest.mark.parametrize(("argument", "variable", "in_file", "chosen"), EARLY)
def test_how_to_log_is_known_before_the_program_is_loaded(
    argument: str | None,
    variable: str | None,
    in_file: str | None,
    chosen: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEGATE_LOG_FORMAT", raising=False)
    if variable is not None:
        monkeypatch.setenv("TIDEGATE_LOG_FORMAT", variable)
    if in_file is not None:
        # What would be refused together with the rest is no matter yet.
        (tmp_path / "tidegate.toml").write_text(f'commit_every = "10m"\nlog_format = "{in_file}"\n', encoding="utf-8")
    assert early_setting("log_format", argument) == chosen
