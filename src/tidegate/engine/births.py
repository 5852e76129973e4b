"""Pure: rounds for which Spark could not start a Python worker: a moment's trouble, or a machine that runs none."""

from __future__ import annotations

from tidegate.errors import SparkFailed

MOST_IN_A_ROW = 5


class Births:
    """Counts them. No record is blamed for one: nobody has run anything."""

    def __init__(self) -> None:
        self._failed = 0

    def went_well(self) -> None:
        """A worker was heard."""
        self._failed = 0

    def failed(self, why: str) -> SparkFailed | None:
        """Count one more; return what to end with, where there is no use in going on."""
        self._failed += 1
        if self._failed < MOST_IN_A_ROW:
            return None
        return SparkFailed(
            f"Spark could not start a Python worker {self._failed} times in a row: {why}",
            "nothing of those rounds ran, and the group stays; mend the Python of Spark's workers (PYSPARK_PYTHON "
            "names it) or make room for them, and start again",
        )
