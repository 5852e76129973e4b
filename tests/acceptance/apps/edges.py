"""Notes every step of a store's transactions, and holds a worker at one while a file asks for it.

A worker that imports this has its stores changed: "begins" is before anything is written, "filled" before the commit,
"committed" after it and before anybody was told, "refused" where the transaction did not come to that.
"""

import os
import time
from pathlib import Path

from tidegate.kafka.transactions import Transactions
from tidegate.sinks.postgres_store import PostgresStore

path = os.environ["EDGES"]
seconds = float(os.environ.get("SECONDS_FILLED", "0"))


def reach(step):
    note(step)
    if held(step):
        note(f"held {step}")
        while held(step):
            time.sleep(0.01)


def held(step):
    return Path(f"{path}.{step}").exists()


def note(words):
    with open(path, "ab", buffering=0) as file:  # noqa: PTH123  # one write to the end, whoever else writes
        file.write(f"{os.getpid()} {words}\n".encode())


def change(store):
    seal, commit = store.seal, store._commit

    def noted_seal(self, effects, commits):
        reach("begins")
        try:
            return seal(self, effects, commits)
        except Exception:
            note("refused")
            raise

    def noted_commit(*words):
        reach("filled")
        time.sleep(seconds)
        commit(*words)
        reach("committed")

    store.seal = noted_seal
    store._commit = staticmethod(noted_commit) if store is Transactions else noted_commit


change(Transactions)
change(PostgresStore)
