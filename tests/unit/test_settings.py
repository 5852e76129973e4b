"""Settings: where each comes from, what is refused, and what the refusal says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import tidegate as tg
from tidegate import machine, settings
from tidegate.durations import rate_per_second, seconds
from tidegate.errors import SettingsError
from tidegate.kafka.connection import kafka_of
from tidegate.settings import Settings, environment_name, resolve

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(environment_name(name), raising=False)
    monkeypatch.chdir(tmp_path)


DURATIONS = [
    # given      seconds  because
    ("200ms", 0.2, "milliseconds"),
    ("5s", 5.0, "seconds"),
    ("10m", 600.0, "minutes"),
    ("2h", 7200.0, "hours"),
    ("1d", 86400.0, "days"),
    ("1.5s", 1.5, "a part of a unit"),
    (" 3 s ", 3.0, "spaces do not matter"),
    (7, 7.0, "a number is seconds"),
    (0.25, 0.25, "a part of a second"),
    (0, 0.0, "none at all"),
]
NO_DURATIONS: list[object] = [
    "",
    "5",
    "s",
    "5 parsecs",
    "-5s",
    "5S",
    -1,
    float("nan"),
    float("inf"),
    True,
    None,
    [5],
]


RATES: list[tuple[str | float, float, str]] = [
    ("100/s", 100.0, "per second"),
    ("6000/m", 100.0, "per minute"),
    ("36/h", 0.01, "per hour"),
    ("0.5/s", 0.5, "less than one"),
    (" 5 / s ", 5.0, "spaces do not matter"),
    (7, 7.0, "a number is per second"),
]
NO_RATES: list[Any] = ["", "100", "100/", "/s", "100/ms", "-1/s", "0/s", "1e3/s", "1" * 400 + "/s", 0, -1, float("nan")]
NO_RATES += [float("inf"), True, None, [5]]


@pytest.mark.parametrize(("given", "expected", "because"), RATES, ids=[row[2] for row in RATES])
def test_a_rate_is_read(given: str | float, expected: float, because: str) -> None:
    assert rate_per_second(given) == pytest.approx(expected), because


@pytest.mark.parametrize("given", NO_RATES, ids=lambda given: repr(given)[:20])
def test_what_is_no_rate_is_refused_with_the_cure(given: Any) -> None:
    with pytest.raises(SettingsError, match='is not a rate; write it like "100/s"'):
        rate_per_second(given)


@pytest.mark.parametrize(("given", "expected", "because"), DURATIONS, ids=[str(row[0]) for row in DURATIONS])
def test_a_duration_is_read(given: str | float, expected: float, because: str) -> None:
    assert seconds(given) == pytest.approx(expected), because


@pytest.mark.parametrize("given", NO_DURATIONS, ids=repr)
def test_what_is_no_duration_is_refused_with_an_example(given: object) -> None:
    with pytest.raises(SettingsError, match=r"is not a duration; (write it like|it must be)"):
        seconds(given)  # type: ignore[arg-type]  # the point of the test


def test_everything_has_a_default() -> None:
    resolved = resolve()

    assert resolved.values == Settings()  # type: ignore[call-arg]  # pydantic's defaults are positional in Field
    assert set(resolved.sources) == set(Settings.model_fields)
    assert set(resolved.sources.values()) == {"default"}


def test_the_strongest_source_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = ['bootstrap = "file:1"', 'master = "local[1]"', 'timeout = "1s"', "lanes = 1"]
    (tmp_path / "tidegate.toml").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setenv("TIDEGATE_BOOTSTRAP", "environment:1")
    monkeypatch.setenv("TIDEGATE_MASTER", "local[2]")
    resolved = resolve({"bootstrap": "argument:1", "timeout": None})

    assert resolved.values.bootstrap == "argument:1"
    assert resolved.values.master == "local[2]"
    assert resolved.values.timeout == 1.0
    assert resolved.sources["bootstrap"] == "argument"
    assert resolved.sources["master"] == "TIDEGATE_MASTER"
    assert resolved.sources["timeout"] == "tidegate.toml", "an argument of None was not given"
    assert resolved.sources["commit_every"] == "default"


def test_the_file_may_lie_in_another_folder(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "tidegate.toml").write_text("lanes = 3", encoding="utf-8")

    assert resolve(folder=elsewhere).values.lanes == 3
    assert resolve().values.lanes is None


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "tidegate.toml").write_text("lanes = = 3", encoding="utf-8")

    with pytest.raises(SettingsError, match=r"tidegate\.toml is not valid TOML: .*line 1.*; mend that line"):
        resolve()


@pytest.mark.parametrize(("text", "expected"), [("250ms", 0.25), ("3", 3.0), ("2.5", 2.5)])
def test_a_duration_from_the_environment_may_be_a_bare_number(
    text: str, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_COMMIT_EVERY", text)

    assert resolve().values.commit_every == expected


def test_an_unknown_argument_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        SettingsError, match=r"unknown setting 'comit_every' \(argument\); did you mean 'commit_every'\?"
    ):
        resolve({"comit_every": 5})


def test_an_unknown_variable_is_refused_with_the_nearest_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_BOOTSTRP", "x")

    with pytest.raises(SettingsError, match=r"unknown setting TIDEGATE_BOOTSTRP \(environment\); did you mean 'boots"):
        resolve()


def test_an_unknown_line_of_the_file_is_refused_with_all_names(tmp_path: Path) -> None:
    (tmp_path / "tidegate.toml").write_text("zzz = 3", encoding="utf-8")

    with pytest.raises(SettingsError, match=r"unknown setting 'zzz' \(tidegate\.toml\); known settings: bootstrap, "):
        resolve()


@pytest.mark.parametrize("variable", ["TIDEGATE_CACHE", "TIDEGATE_DEBUG"])
def test_variables_of_the_tools_are_no_settings(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")

    assert resolve().values.lanes is None


REFUSED = [
    ("commit_every", 0, "greater than 0"),
    ("commit_every", "soon", "is not a duration"),
    ("commit_records", 0, "greater than or equal to 1"),
    ("lanes", 0, "greater than or equal to 1"),
    ("lanes", "many", "valid integer"),
    ("timeout", "0s", "greater than 0"),
    ("stop_budget", 0, "greater than 0"),
    ("session_timeout", 0, "greater than 0"),
    ("broker_timeout", 0, "greater than 0"),
]


@pytest.mark.parametrize(("name", "value", "reason"), REFUSED)
def test_a_value_that_cannot_work_is_named_with_its_source(name: str, value: object, reason: str) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve({name: value})

    assert caught.value.happened.startswith(f"setting {name}={value!r} (argument) cannot work: ")
    assert reason in caught.value.happened
    assert caught.value.cure == "see docs/settings.md"


def test_the_variable_of_a_refused_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_LANES", "-1")

    with pytest.raises(SettingsError, match=r"setting lanes='-1' \(TIDEGATE_LANES\) cannot work"):
        resolve()


def test_rounds_that_outlast_the_stop_budget_are_refused_with_the_number_that_works() -> None:
    with pytest.raises(SettingsError, match=r"= 65s, .*; set stop_budget to at least 70s"):
        resolve({"timeout": "1m"})

    assert resolve({"timeout": "1m", "stop_budget": 70}).values.timeout == 60.0


def test_a_stall_shorter_than_a_round_is_refused() -> None:
    with pytest.raises(SettingsError, match="set stall_after to more than 25s"):
        resolve({"stall_after": 25})


def test_a_static_name_excludes_the_broker_led_protocol() -> None:
    with pytest.raises(SettingsError, match="leave one of the two out"):
        resolve({"instance": "a", "group_protocol": "consumer"})


def test_the_cache_lies_where_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TIDEGATE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert machine.cache_folder() == tmp_path / "home" / ".cache" / "tidegate"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert machine.cache_folder() == tmp_path / "xdg" / "tidegate"

    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "own"))
    assert machine.cache_folder() == tmp_path / "own"


@pytest.mark.parametrize(("value", "asked"), [("1", True), ("yes", True), ("", False), ("0", False), ("false", False)])
def test_debug_is_asked_for_by_a_variable(value: str, asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_DEBUG", value)

    assert machine.debug_asked() is asked


def test_debug_once_asked_for_holds_for_child_processes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_DEBUG", "0")
    machine.ask_for_debug()

    assert machine.debug_asked()
    assert os.environ["TIDEGATE_DEBUG"] == "1"


def test_java_home_is_known_where_it_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert machine.java_home() == tmp_path

    monkeypatch.delenv("JAVA_HOME")
    assert machine.java_home() is None


def test_workers_use_this_python_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "theirs")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    machine.choose_worker_python("ours")

    assert os.environ["PYSPARK_PYTHON"] == "theirs"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == "ours"


# --- the history


def test_the_history_is_named_by_text_or_by_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve().values.history == "sqlite"
    monkeypatch.setenv("SOME_URL", "postgresql://db/x")
    (tmp_path / "tidegate.toml").write_text('history = { from = "env:SOME_URL" }', encoding="utf-8")
    named = resolve().values.history
    assert isinstance(named, tg.Secret)
    assert named.reveal() == "postgresql://db/x"
    assert resolve({"history": "off", "history_every": "200ms"}).values.history_every == 0.2


def test_a_password_in_the_history_is_shown_neither_with_the_settings_nor_in_an_error() -> None:
    url = "postgresql://anna:geheim@db/x"
    assert "geheim" not in repr(resolve({"history": url}))
    assert settings.shown_setting("history", url) == "postgresql://anna:***@db/x"
    for given in ("", "  ", 5, {"from": 1}, ["postgresql://anna:geheim@db/x"]):
        with pytest.raises(SettingsError) as refused:
            resolve({"history": given})
        assert "geheim" not in str(refused.value)


def test_the_state_folder_is_where_the_user_keeps_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert machine.state_folder() == tmp_path / "tidegate"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert machine.state_folder() == tmp_path / "home" / ".local" / "state" / "tidegate"


# --- settings of the Kafka client


def test_client_settings_come_from_the_strongest_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tidegate.toml").write_text(
        """
        [client]
        "sasl.username" = "of the file"
        sasl.mechanism = "of the file"
        security.protocol = "of the file"
        socket.timeout.ms = 5000
        ssl.key.password = { from = "env:SOME_KEY" }
        sasl.oauthbearer.client.secret = "a name that ends in secret"
        """,
        encoding="utf-8",
    )
    monkeypatch.setenv("TIDEGATE_CLIENT_SASL_MECHANISM", "of the environment")
    monkeypatch.setenv("TIDEGATE_CLIENT_SECURITY_PROTOCOL", "of the environment")
    monkeypatch.setenv("SOME_KEY", "hidden")

    resolved = resolve({"client": {"security.protocol": "of the argument"}})

    client = dict(resolved.client)
    key_password = client.pop("ssl.key.password")
    assert isinstance(key_password, tg.Secret)
    assert key_password.reveal() == "hidden"
    assert client == {
        "sasl.username": "of the file",
        "sasl.mechanism": "of the environment",
        "security.protocol": "of the argument",
        "socket.timeout.ms": 5000,
        "sasl.oauthbearer.client.secret": "a name that ends in secret",
    }
    assert resolved.client_sources["sasl.username"] == "tidegate.toml"
    assert resolved.client_sources["sasl.mechanism"] == "TIDEGATE_CLIENT_SASL_MECHANISM"
    assert resolved.client_sources["security.protocol"] == "argument"


@pytest.mark.parametrize("text", ['client = "x"', '[client]\n"sasl.username" = ["x"]'])
def test_client_settings_of_the_wrong_shape_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tidegate.toml").write_text(text, encoding="utf-8")

    with pytest.raises(SettingsError, match=r"tidegate\.toml"):
        resolve()


def test_what_a_run_is_given_outranks_the_programs_own_client_settings() -> None:
    kafka = tg.Kafka("there:1", {"sasl.username": "of the program", "sasl.mechanism": "of the program"})
    pipeline = tg.from_kafka("orders", group="billing", kafka=kafka)

    resolved = pipeline.resolved({"client": {"sasl.username": "of the run"}})

    assert resolved.client == {"sasl.username": "of the run", "sasl.mechanism": "of the program"}
    assert resolved.values.bootstrap == "there:1"


@pytest.mark.parametrize("name", ["group.id", "enable.auto.commit", "bootstrap.servers", "error_cb", "logger"])
def test_client_settings_that_are_not_yours_are_refused_from_anywhere(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        kafka_of(resolve({"client": {name: "true"}}))
