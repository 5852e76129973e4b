"""Every error this package raises, and what helps.

TidegateError            exit code 1 unless said otherwise; its text names the cure
    SettingsError        the settings or the pipeline cannot work: fix them and start again
        NeverAwaited     a plain function returned a coroutine, which nobody would wait for
    JavaMissing          Spark and the development broker need Java 17 or newer
    BrokerUnreachable    no answer from Kafka: the same call may work later
    BrokerRefused        Kafka answered no: rights, limits, a name that is taken
        GroupHasMembers  only a group without members takes commits from outside: stop it, or let it do the work
        TopicExists      a topic of that name is there, or is just being made
    TopicMissing         a topic that should be read or written does not exist
    GroupMissing         nobody has joined or committed under that name: check it
    NoStartingOffset     starting="none" and the group has no commit for a topic
    RecordsLost          the mark is not in the log: retention took the records, or the topic was made anew
    DatabaseUnreachable  no answer from PostgreSQL: the same call may work later
    DatabaseRefused      PostgreSQL answered no: the password, rights, a table that is missing
    HistoryBroken        the history cannot be read or written: it is never needed to go on, mend it when you want it
    OffsetsDiffer        the group was moved behind the back of the table that keeps its marks: say which to trust
    RewindRefused        the running pipeline could not be moved: it says why, and nothing is half done in silence
    SparkFailed          Spark could not start, or ended under the run
    Stalled              records wait, a mark does not move, and a new worker did not help
    DeliveryFailed       at least one record that was produced was not acknowledged
    StoppedAtRecord      a record failed and the policy was to stop: see its cause (exit code 3)
Reasons for which a record may fail, beside what its functions raise:
    WorkerDied           the record ended its Python worker twice, alone
    TimedOut             one attempt took longer than `timeout`
    Undecodable          its bytes are not what the decoder reads
    CopyRefused          the broker does not take its retry or dead-letter copy
What users' functions raise to choose a record's way:
    Reject               never again: the last step of the row of `on_error`
    Unavailable          the sink is away: `hold` waits for it
    BatchFailed          some values of a list were not taken
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.ops.produce import Delivery
    from tidegate.records import Failure

EXIT_DONE = 0
EXIT_CANNOT_WORK = 1
EXIT_USAGE = 2
EXIT_STOPPED_AT_RECORD = 3

MESSAGE_SHOWN = 500
"""Characters of a user's own error that a sentence shows; the report has more."""


class TidegateError(Exception):
    """What happened, and what to do about it, in one sentence."""

    exit_code = EXIT_CANNOT_WORK

    def __init__(self, happened: str, cure: str) -> None:
        super().__init__(f"{happened}; {cure}")
        self.happened = happened
        self.cure = cure

    def __reduce__(self) -> tuple[type[TidegateError], tuple[str, str]]:
        """Keep both halves when an error crosses a process border."""
        return (type(self), (self.happened, self.cure))


class SettingsError(TidegateError):
    """The settings or the pipeline cannot work."""


class JavaMissing(TidegateError):
    """Spark and the development broker run on Java, and none was found."""


class BrokerUnreachable(TidegateError):
    """No answer from Kafka in time."""


class BrokerRefused(TidegateError):
    """Kafka answered, and the answer was no."""


class GroupHasMembers(BrokerRefused):
    """The group has members, so the broker takes no commit from outside it."""


class TopicExists(BrokerRefused):
    """A topic of that name is there already, whether or not every broker knows it yet."""


class TopicMissing(TidegateError):
    """A topic does not exist."""


class GroupMissing(TidegateError):
    """Nobody has ever joined this group, or committed for it."""


class NoStartingOffset(TidegateError):
    """`starting="none"`, and the group has no commit for a topic."""


class RecordsLost(TidegateError):
    """Records were never settled and cannot be had any more: they left the log, or their topic was made anew."""


class DatabaseUnreachable(TidegateError):
    """No answer from PostgreSQL in time, or it is not ready to give one."""


class HistoryBroken(TidegateError):
    """The history cannot be read or written. A run goes on without it."""


class OffsetsDiffer(TidegateError):
    """The group was moved, and the marks that a database keeps with its rows were not."""


class DatabaseRefused(TidegateError):
    """PostgreSQL answered, and the answer was no."""


class RewindRefused(TidegateError):
    """A running pipeline was not moved, or not in all partitions."""


class SparkFailed(TidegateError):
    """Spark could not start, or ended under the run."""


class NeverAwaited(SettingsError):
    """A plain function returned a coroutine: nobody would wait for it."""


class Stalled(TidegateError):
    """Records wait, a mark does not move, and replacing its lane did not help."""


class DeliveryFailed(TidegateError):
    """At least one produced record was not acknowledged by the broker; `delivery` says which were."""

    def __init__(self, happened: str, cure: str, delivery: Delivery | None = None) -> None:
        super().__init__(happened, cure)
        self.delivery = delivery

    def __reduce__(self) -> tuple[type[DeliveryFailed], tuple[str, str, Delivery | None]]:  # type: ignore[override]  # one more
        """Keep the report too."""
        return (type(self), (self.happened, self.cure, self.delivery))


class StoppedAtRecord(TidegateError):
    """A record failed, and the policy was to stop there."""

    exit_code = EXIT_STOPPED_AT_RECORD

    def __init__(self, failure: Failure) -> None:
        super().__init__(
            f"stopped at {failure.partition} offset {failure.record_offset}: {failure.error_type}: "
            f"{failure.message[:MESSAGE_SHOWN]}",
            "the group stays at this record; mend the cause and start again",
        )
        self.failure = failure

    def __reduce__(self) -> tuple[type[StoppedAtRecord], tuple[Failure]]:  # type: ignore[override]  # one argument here
        """Rebuild from the failure alone."""
        return (type(self), (self.failure,))


class WorkerDied(Exception):
    """The record ended the Python worker that ran it, twice, alone in its round."""


class TimedOut(Exception):
    """One attempt at a record took longer than `timeout`."""


class Undecodable(ValueError):
    """The record's bytes are not what the decoder reads: no attempt in place will change that."""


class CopyRefused(Exception):
    """The broker does not take the record's retry or dead-letter copy, so the record stays where it is."""


class BatchFailed(Exception):
    """Raise it from a sink that gets lists: `BatchFailed({place: error})` fails these values, the others are taken."""

    failures: Mapping[int, BaseException] | None = None
    """None: a class of the user's own that does not say which, so that all have failed."""

    def __init__(self, failures: Mapping[int, BaseException]) -> None:
        super().__init__(f"{len(failures)} values of the list were not taken")
        self.failures = dict(failures)


class Reject(Exception):
    """Raise it to say: never again. The record goes to the last step of the row of `on_error`."""


class Unavailable(Exception):
    """Raise it to say: the sink is away. `hold` waits for it; no attempt is spent.

    `retry_after` (seconds) asks not to be tried before.
    """

    retry_after: float | None = None  # also of a class of the user's own whose `__init__` does not call this one

    def __init__(self, *what: object, retry_after: float | None = None) -> None:
        super().__init__(*what)
        self.retry_after = retry_after
