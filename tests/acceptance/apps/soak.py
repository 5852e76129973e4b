"""What most pipelines do, for hours: decode, check, write; one record in a thousand is set aside."""

import os

import tidegate as tg


def check(order):
    if order["id"] % 1000 == 999:
        raise ValueError("no good")
    return order


def write(_order):
    pass


pipeline = (
    tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"])
    .map(tg.json)
    .map(check)
    .sink(write)
    .on_error(tg.retry(1, wait="1ms"), tg.dead_letter())
)
