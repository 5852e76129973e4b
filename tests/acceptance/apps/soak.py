"""What most pipelines do, for hours: decode, check, write; one record in a thousand is set aside."""

import os

import tidegate as tg


def check(order):
    if order["id"] % 1000 == 999:
        raise ValueError("no good")
    return order


class Numbers:
    """Notes each number at the end of a file, four bytes at a time: nothing stays in the worker that is weighed."""

    def __init__(self, path):
        self._path = path

    def open(self):
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, order):
        if os.write(self._file, order["id"].to_bytes(4, "little")) != 4:
            raise OSError("the disk is full")

    def close(self):
        os.close(self._file)


pipeline = (
    tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"])
    .map(tg.json)
    .map(check)
    .sink(Numbers(os.environ["NUMBERS"]))
    .on_error(tg.retry(1, wait="1ms"), tg.dead_letter())
)
