"""Every setting, checked, with its source: argument, `TIDEGATE_*`, `tidegate.toml`, default.

Only this module and `machine.py` read the environment (and `secrets.py`, what a secret names).
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tidegate.durations import rate_per_second, seconds
from tidegate.errors import SettingsError
from tidegate.machine import CACHE_VARIABLE, DEBUG_VARIABLE
from tidegate.secrets import MASK, Secret, secret, shown_address, text_or_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_NAME = "tidegate.toml"
PREFIX = "TIDEGATE_"
CLIENT = "client"
"""Settings of the Kafka client: a table in the file and in arguments, `TIDEGATE_CLIENT_*` in the environment."""

ClientValue = str | int | float | bool | Secret | Callable[..., Any]

CANCEL_SECONDS = 5.0
"""The last part of the stop budget: a cancelled Python task lives on for up to four seconds."""


def _checked(parse: Callable[[Any], float]) -> Callable[[object], float]:
    """Return a parser as pydantic wants it; the environment knows text only, so plain numbers may come as text."""

    def check(value: object) -> float:
        if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value):
            value = float(value)
        try:
            return parse(value)
        except SettingsError as error:
            raise ValueError(str(error)) from None

    return check


Duration = Annotated[float, BeforeValidator(_checked(seconds))]
Rate = Annotated[float, BeforeValidator(_checked(rate_per_second))]


def _address(value: object) -> str | Secret:
    """Turn what was given for a database into text or a secret; the text is never repeated in an error."""
    if isinstance(value, dict) and set(value) == {"from"}:
        return secret(value["from"])
    if isinstance(value, Secret) or (isinstance(value, str) and value.strip()):
        return value
    raise ValueError('it must be "sqlite", "off", a path or a URL')


Address = Annotated[str | Secret, BeforeValidator(_address)]
Token = Annotated[str | Secret, BeforeValidator(text_or_secret)]
Trust = Literal["table", "group"]


class Settings(BaseModel):
    """What can be chosen for a run. Durations are seconds, or text like `"200ms"`."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    bootstrap: str = Field("localhost:9092", description="Kafka's address: host:port, several with commas.")
    master: str = Field(
        "local[*]",
        description="Where Spark runs. local[N] runs N tasks at a time on this machine, sc://host:port is a Spark "
        "Connect server.",
    )
    commit_every: Duration = Field(
        5.0,
        gt=0,
        description="Longest time a round reads before its marks are committed. Shorter: fewer repeats after a "
        "crash, more Spark jobs. Longer: the reverse. Neither loses a record.",
    )
    commit_records: int | None = Field(
        None,
        ge=1,
        description="Most records between two commits of a lane. 1 commits every single record: exact, and slow "
        "(one Spark job each).",
    )
    lanes: int | None = Field(
        None,
        ge=1,
        description="How many rounds may run at a time. Default: Spark's task slots, at most one per partition. "
        "More than the slots would starve each other: refused on this machine, waited for on a cluster.",
    )
    timeout: Duration = Field(
        20.0,
        gt=0,
        description="Longest time for one attempt at one record. A record that takes longer has failed, and the "
        "Python worker that ran it is ended.",
    )
    stop_budget: Duration = Field(
        30.0,
        gt=0,
        description="Longest time that work in flight gets to finish on SIGTERM, Ctrl-C or a rebalance. What is "
        "not finished then runs again after the restart.",
    )
    live: bool = Field(
        default=True,
        description="Let rounds report while they run (the live channel). Off: marks are committed when a round "
        "ends, and a stop waits for that.",
    )
    frame_records: int = Field(
        1_000_000,
        ge=1,
        description="Most records (offsets, to be exact) of one DataFrame round, all partitions together.",
    )
    frame_bytes: int = Field(
        268_435_456,
        ge=1,
        description="How many bytes of records a DataFrame round aims at, by the size of those before. The first round "
        "of a run is small, to learn it.",
    )
    frame_seconds: Duration = Field(
        60.0,
        gt=0,
        description="How long a DataFrame round aims to take, by the speed of those before. A round whose writer is "
        "slower is not cut off.",
    )
    frame_every: Duration = Field(
        0.0,
        description="How long records gather before a DataFrame round begins, unless it is full before. 0: it begins "
        "when there is a record.",
    )
    rate: Rate | None = Field(
        None,
        description="Most records that this process begins per second, all lanes together (attempts count too): "
        "100/s, 6000/m. Default: as fast as it can.",
    )
    session_timeout: Duration = Field(
        10.0,
        gt=0,
        description="How long the group waits for a dead process before its partitions go to others. Shorter: a "
        "restart after a crash begins sooner. Longer: a frozen machine keeps its partitions.",
    )
    instance: str | None = Field(
        None,
        min_length=1,
        description="A name for this copy that outlives its process (static membership). After a crash a restart under "
        "the same name has its partitions back at once. Every copy needs a name of its own.",
    )
    group_protocol: Literal["classic", "consumer"] = Field(
        "classic",
        description="How the group divides partitions. classic: by its members. consumer: by the broker (Kafka 4), "
        "which also sets the session timeout; it excludes instance.",
    )
    trust: Trust | None = Field(
        None,
        description="Where the group and the table of a PostgreSQL sink differ because somebody moved the group: which "
        "of the two is meant, table or group. Default: neither, and the run does not start.",
    )
    history: Address = Field(
        "sqlite",
        repr=False,
        description="Where the offset table, runs and failures are written: sqlite (a file of the user's), off, a "
        "path, or a postgresql:// URL. A run never needs it, and goes on without.",
    )
    history_every: Duration = Field(5.0, gt=0, description="How often a run writes its history.")
    history_keep: Duration = Field(604_800.0, gt=0, description="How long commits, runs and failures are kept there.")
    token: Token | None = Field(
        None, repr=False, description="Who shows it may see and change everything over HTTP: see docs/rest.md."
    )
    read_token: Token | None = Field(None, repr=False, description="Who shows it may see everything over HTTP.")
    idle_notice: Duration = Field(
        300.0, gt=0, description="Say so when no record has come for this long, and again each time it has passed."
    )
    stall_after: Duration = Field(
        90.0,
        gt=0,
        description="A partition with records whose mark has not moved for this long, and that does not just wait its "
        "turn, is stalled: its lane is named and replaced. If it stalls again for as long, the run ends. Shorter: a "
        "stuck worker is found sooner.",
    )
    retry_retention: Duration = Field(
        604_800.0,
        gt=0,
        description="How long a retry topic keeps a record beyond its delay: the longest time that the pipeline may be "
        "stopped without losing a retry.",
    )
    dead_retention: Duration | None = Field(
        None, gt=0, description="How long dead letters, and what was redriven, are kept. Default: for ever."
    )
    own_partitions: int | None = Field(
        None,
        ge=1,
        description="Partitions of the group's own topics (retry, redrive, dead) when they are made. Default: as "
        "many as the largest source topic.",
    )
    own_replication: int = Field(
        -1, ge=-1, description="Replicas of the group's own topics when they are made. -1: as the source topics."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="How log lines look: text for people, or json for programs, one object per line."
    )
    trace_headers: bool = Field(
        default=True,
        description="Pass the W3C trace headers of a record (traceparent, tracestate, baggage) on to HTTP servers and "
        "Kafka topics that its values are sent to.",
    )
    broker_timeout: Duration = Field(
        10.0, gt=0, description="How long to wait for an answer from Kafka before saying that it cannot be reached."
    )


@dataclass(frozen=True)
class Resolved:
    """The settings of a run, and where each came from."""

    values: Settings
    sources: Mapping[str, str]
    client: Mapping[str, ClientValue] = field(default_factory=dict, repr=False)
    """Settings of the Kafka client, by the client's own names."""
    client_sources: Mapping[str, str] = field(default_factory=dict)


def environment_name(setting: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + setting.upper()


def shown_setting(name: str, value: object) -> object:
    """Return a setting's value as it may be shown."""
    if name in ("token", "read_token") and isinstance(value, str):
        return MASK
    if name == "history":
        return shown_address(value) if isinstance(value, str | Secret) else MASK
    return value


def client_variable(name: str) -> str:
    """Return the environment variable of a setting of the Kafka client."""
    return f"{PREFIX}{CLIENT}_{name.replace('.', '_')}".upper()


def resolve(arguments: Mapping[str, object] | None = None, folder: Path | None = None) -> Resolved:
    """Gather every setting from its strongest source and check it."""
    known = list(Settings.model_fields)
    merged: dict[str, Any] = {}
    client: dict[str, ClientValue] = {}
    client_sources: dict[str, str] = {}
    sources = dict.fromkeys(known, "default")
    for source, given in (
        (FILE_NAME, _from_file(folder or Path.cwd())),
        ("environment", _from_environment(known)),
        ("argument", {name: value for name, value in (arguments or {}).items() if value is not None}),
    ):
        for name, own in _client_settings(given.pop(CLIENT, {}), source).items():
            client[name] = own
            client_sources[name] = client_variable(name) if source == "environment" else source
        for name, value in given.items():
            if name not in known:
                raise SettingsError(f"unknown setting {name!r} ({source})", _suggest(name, known))
            merged[name] = value
            sources[name] = environment_name(name) if source == "environment" else source
    try:
        values = Settings.model_validate(merged)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        reason = str(first["msg"]).removeprefix("Value error, ")
        refused = shown_setting(name, merged.get(name))
        raise SettingsError(
            f"setting {name}={refused!r} ({sources.get(name, 'argument')}) cannot work: {reason}",
            "see docs/settings.md",
        ) from None
    _check_together(values)
    return Resolved(values, sources, client, client_sources)


def early_setting(name: str, argument: object = None) -> Any:
    """Return one setting alone: how to log must be known before the program is, and with it all the others."""
    given: object = argument
    for source in (_from_environment(list(Settings.model_fields)), _from_file(Path.cwd())):
        given = source.get(name) if given is None else given
    try:
        return getattr(Settings.model_validate({} if given is None else {name: given}), name)
    except ValidationError:
        return Settings.model_fields[name].default  # the sentence about it comes when all of them are read


def _check_together(values: Settings) -> None:
    """Refuse settings that exclude each other."""
    longest = values.commit_every + values.timeout
    if longest + CANCEL_SECONDS > values.stop_budget:
        raise SettingsError(
            f"a round may last commit_every + timeout = {longest:g}s, and stop_budget={values.stop_budget:g}s must "
            f"leave {CANCEL_SECONDS:g}s to cancel one that does not end",
            f"set stop_budget to at least {longest + CANCEL_SECONDS:g}s, or shorten one of the two",
        )
    if values.stall_after <= longest:
        raise SettingsError(
            f"stall_after={values.stall_after:g}s is not longer than commit_every + timeout = {longest:g}s: "
            "work that goes well would count as stalled",
            f"set stall_after to more than {longest:g}s",
        )
    if values.instance is not None and values.group_protocol == "consumer":
        raise SettingsError(
            f"instance={values.instance!r} does not work with group_protocol='consumer' in the Kafka client",
            "leave one of the two out",
        )


def _client_settings(given: object, source: str) -> dict[str, ClientValue]:
    """Flatten a table of client settings: in TOML `sasl.username = "x"` is a table within a table."""
    if not isinstance(given, dict):
        raise SettingsError(f"{CLIENT} is no table ({source})", 'write [client], and below it "sasl.username" = "..."')
    found: dict[str, ClientValue] = {}
    for name, value in given.items():
        if not isinstance(value, dict):
            if not callable(value) and not isinstance(value, str | int | float | Secret):
                raise SettingsError(f"the client setting {name} is neither text nor a number ({source})", "mend it")
            found[name] = value
        elif set(value) == {"from"} and isinstance(value["from"], str):
            found[name] = secret(value["from"])
        else:
            inner = _client_settings(value, source)
            found |= {f"{name}.{rest}": one for rest, one in inner.items()}
    return found


def _suggest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known settings: {', '.join(sorted(known))}"


def _from_file(folder: Path) -> dict[str, Any]:
    path = folder / FILE_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}", "mend or remove it") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}", "mend that line") from None


_OTHERS = {CACHE_VARIABLE, DEBUG_VARIABLE}


def _from_environment(known: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    client: dict[str, str] = {}
    for variable, value in os.environ.items():
        if not variable.startswith(PREFIX) or variable in _OTHERS:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name.startswith(f"{CLIENT}_"):
            client[name.removeprefix(f"{CLIENT}_").replace("_", ".")] = value
            continue
        if name not in known:
            raise SettingsError(f"unknown setting {variable} (environment)", _suggest(name, known))
        found[name] = value
    return {**found, CLIENT: client} if client else found
