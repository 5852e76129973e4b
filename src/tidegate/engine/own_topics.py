"""The group's own topics: made before the group is joined, checked, and set as they have to be.

`GROUP.retry.DELAY`, one per delay, so that the first record of a partition is always the first that is due;
`GROUP.redrive`, by which dead letters come back; `GROUP.dead`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.errors import BrokerRefused, SettingsError, TopicExists
from tidegate.kafka.admin import Admin, TopicInfo
from tidegate.kafka.configs import TopicConfigs
from tidegate.names import dead_topic, delay_of, redrive_topic, retry_topic
from tidegate.policy import Policy
from tidegate.settings import Settings

logger = logging.getLogger("tidegate.topics")

MORE_BYTES = 65_536
"""A copy is its record with more headers."""
USUAL_BYTES = 1_048_588
"""What a topic takes unless it is told otherwise."""
FOR_EVER = -1
HEARD_OF_SECONDS = 30.0
"""How long it may take until every broker knows a topic."""
NAP_SECONDS = 0.2
_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True)
class OwnTopics:
    """The group's own topics that exist now."""

    infos: Mapping[str, TopicInfo]
    delays: Mapping[str, float]
    """Those that the pipeline reads: their delays, 0 for the redrive topic."""

    @property
    def read(self) -> dict[str, TopicInfo]:
        """The topics that the pipeline reads beside its sources."""
        return {name: info for name, info in self.infos.items() if name in self.delays}

    @property
    def partitions(self) -> dict[str, int]:
        """How many partitions each has."""
        return {name: info.partitions for name, info in self.infos.items()}


def wanted_settings(name: str, group: str, settings: Settings, most_bytes: int) -> dict[str, str]:
    """Pure: return how a topic of the group has to be set."""
    delay = delay_of(name, group)
    if not delay:  # dead letters and what was redriven: how long they are kept is the user's choice
        kept = FOR_EVER if settings.dead_retention is None else round(settings.dead_retention * 1000)
    else:
        kept = round((delay + settings.retry_retention) * 1000)
    return {
        **_APPEND_TIME,
        "cleanup.policy": "delete",
        "retention.ms": str(kept),
        "retention.bytes": str(FOR_EVER),  # a cluster's own bound would delete retries that are not due yet
        "max.message.bytes": str(most_bytes + MORE_BYTES),
    }


def needed_changes(wanted: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    """Pure: return which settings of a topic have to change. More room and a longer keeping are left alone."""
    changes = {}
    for name, value in wanted.items():
        there = found.get(name)
        if there == value:
            continue
        if (
            name in ("retention.ms", "retention.bytes", "max.message.bytes")
            and there is not None
            and _is_enough(int(there), int(value))
        ):
            continue
        changes[name] = value
    return changes


def examine(
    configs: TopicConfigs, group: str, policy: Policy, settings: Settings, known: Iterable[str]
) -> dict[str, str]:
    """Say of each of the group's own topics, without changing anything, what a start would do to it."""
    present = set(known)
    names = [name for name in wanted_topics(group, policy) if name in present]
    found = configs.read(names)
    said = {}
    for name in wanted_topics(group, policy):
        if name not in present:
            said[name] = "will be made at the start"
            continue
        # How large a record may be is the sources' to say, which are looked at when it starts.
        needed = wanted_settings(name, group, settings, -MORE_BYTES)
        del needed["max.message.bytes"]
        changes = needed_changes(needed, found[name])
        shown = ", ".join(f"{key}={value}" for key, value in changes.items())
        said[name] = f"will be set right at the start: {shown}" if changes else "set as it should be"
    return said


def _is_enough(there: int, wanted: int) -> bool:
    return there == FOR_EVER or (wanted != FOR_EVER and there >= wanted)


def wanted_topics(group: str, policy: Policy) -> list[str]:
    """Pure: return the topics that a pipeline with this policy writes or reads."""
    names = [retry_topic(group, delay) for delay in policy.delays]
    if policy.has_dead_letters:
        names += [redrive_topic(group), dead_topic(group)]
    elif names:
        names.append(redrive_topic(group))  # also the place where the broker's clock is read
    return names


def prepare(
    admin: Admin, group: str, policy: Policy, settings: Settings, sources: Mapping[str, TopicInfo]
) -> OwnTopics:
    """Make what is missing and set what is set wrong; return the group's own topics."""
    wanted = wanted_topics(group, policy)
    # Whatever an earlier row wrote is still to be read.
    left = [name for name in admin.topic_names() if delay_of(name, group) is not None and name not in wanted]
    if any(delay_of(name, group) for name in left) and redrive_topic(group) not in wanted:
        # By it the broker's time is read: it has to be there, and set right.
        wanted.append(redrive_topic(group))
        left = [name for name in left if name != redrive_topic(group)]
    clash = sorted(set(sources) & {*wanted, *left})
    if clash:
        raise SettingsError(
            f"{', '.join(clash)} is a topic of the group {group} itself, which its pipeline reads anyway",
            "leave it out of from_kafka",
        )
    if not wanted and not left:
        return OwnTopics({}, {})
    if wanted:
        _make_and_set(admin, wanted, group, settings, sources)
    infos = made_topics(admin, [*wanted, *left])
    delays = {name: delay for name in infos if (delay := delay_of(name, group)) is not None}
    return OwnTopics(infos, delays)


def make_topic(admin: Admin, name: str, partitions: int, needed: Mapping[str, str], replication: int = -1) -> None:
    """Make a topic of a group's own, unless somebody is faster: copies of a program may start at one moment."""
    try:
        admin.create_topic(name, partitions, needed, replication)
    except TopicExists:
        # The controller refuses what another copy has just made before every broker has heard of it.
        if not _heard_of(admin, [name]):
            raise
    except BrokerRefused:
        if name not in admin.existing([name]):
            raise
    else:
        logger.info("topic %s made (%d partitions)", name, partitions, extra={"action": "topic_made"})


def made_topics(admin: Admin, names: Iterable[str]) -> dict[str, TopicInfo]:
    """Return these topics, which are there: of several brokers the one that is asked may not have heard of one yet."""
    wanted = list(names)
    found = _heard_of(admin, wanted)
    return found if len(found) == len(wanted) else admin.describe(wanted)


def _heard_of(admin: Admin, names: list[str]) -> dict[str, TopicInfo]:
    deadline = time.monotonic() + HEARD_OF_SECONDS
    while len(found := admin.existing(names)) < len(names) and time.monotonic() < deadline:
        time.sleep(NAP_SECONDS)
    return found


def _make_and_set(
    admin: Admin, wanted: list[str], group: str, settings: Settings, sources: Mapping[str, TopicInfo]
) -> None:
    configs, found = TopicConfigs(admin), admin.existing(wanted)
    theirs = _configs_of(configs, sources)
    most_bytes = max((int(one.get("max.message.bytes", "0")) for one in theirs), default=0) or USUAL_BYTES
    needed = {name: wanted_settings(name, group, settings, most_bytes) for name in wanted}
    partitions = settings.own_partitions or max((info.partitions for info in sources.values()), default=1)
    replication, insync = as_safe(settings.own_replication, sources.values(), theirs)
    for name in wanted:
        if name not in found:
            make_topic(admin, name, partitions, {**needed[name], **insync}, replication)
    _set_right(configs, {name: needed[name] for name in found})


def _set_right(configs: TopicConfigs, wanted: Mapping[str, Mapping[str, str]]) -> None:
    found = configs.read(wanted)
    for name, needed in wanted.items():
        changes = needed_changes(needed, found[name])
        if changes:
            configs.change(name, changes)
            shown = ", ".join(f"{key}={value}" for key, value in changes.items())
            logger.warning("topic %s was set wrong and is set right: %s", name, shown, extra={"action": "topic_set"})


def as_safe(
    chosen: int, sources: Iterable[TopicInfo], configs: Iterable[Mapping[str, str]]
) -> tuple[int, dict[str, str]]:
    """Pure: return the replicas of a new topic of the group's own, and how many must have a copy for it to count.

    A record is settled by its copy: that must be as safe as the record was, whatever the broker's defaults are.
    """
    replication = chosen if chosen > 0 else max((info.replication for info in sources), default=-1)
    least = min(max((int(one.get("min.insync.replicas", "1")) for one in configs), default=1), replication)
    return replication, {"min.insync.replicas": str(least)} if least > 1 else {}


def _configs_of(configs: TopicConfigs, sources: Iterable[str]) -> list[Mapping[str, str]]:
    try:
        return list(configs.read(sources).values())
    except BrokerRefused as error:
        # Only a record larger than the default would notice, and it would stop the run, not be lost.
        logger.warning("%s: the usual size is taken", error.happened, extra={"action": "size_unknown"})
        return []


def least_taken(admin: Admin, topics: Iterable[str]) -> int:
    """Return how many bytes all of these topics take at once; the usual where that may not be asked."""
    try:
        found = TopicConfigs(admin).read(topics)
    except BrokerRefused:
        return USUAL_BYTES
    return min((int(one.get("max.message.bytes", USUAL_BYTES)) for one in found.values()), default=USUAL_BYTES)
