"""Reading a group's marks outlives its coordinator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support import wait_until
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.records import Partition

ASK_ON_AND_ON = """
import sys
from tidegate.errors import TidegateError
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.records import Partition
admin = Admin(Kafka(sys.argv[1]), 3.0)
while True:
    try:
        print(admin.committed("g", [Partition("t", 0)])[Partition("t", 0)].mark, flush=True)
    except TidegateError as error:
        print("waits", flush=True)
"""


def test_asking_for_marks_while_the_broker_restarts_does_not_end_the_process(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as own:
        admin = Admin(Kafka(own.bootstrap), 20.0)
        admin.create_topic("t", 1)
        admin.commit_for_empty_group("g", {Partition("t", 0): (0, "")})
        answers = tmp_path / "answers"
        with answers.open("w") as file:
            asker = subprocess.Popen([sys.executable, "-c", ASK_ON_AND_ON, own.bootstrap], stdout=file)
        try:
            for is_killed in (False, False, True):
                before = len(answers.read_text())
                wait_until(lambda before=before: len(answers.read_text()) > before + 20, within=60, what="answers")  # type: ignore[misc]
                if is_killed:
                    own.kill()
                    own.start()
                else:
                    own.restart()
                before = len(answers.read_text())
                wait_until(
                    lambda before=before: "0\n" in answers.read_text()[before:],  # type: ignore[misc]
                    within=60,
                    what="the right answer again",
                )
                assert asker.poll() is None, f"the process ended with {asker.returncode}"
        finally:
            asker.kill()
            asker.wait()
