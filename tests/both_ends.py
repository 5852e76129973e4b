"""A plugin for pytest: files dealt to the parts of `make rest` from both ends of the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController


class FromBothEnds(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist ships no types
    """The last part begins at the end: there one Spark session serves many files, and the others hardly meet it."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node is self.nodes[-1]:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Deal files this way, and leave every other way of dealing tests as it is."""
    return FromBothEnds(config, log) if config.getoption("dist") == "loadfile" else None
