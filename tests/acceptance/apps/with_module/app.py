"""A program that needs the module beside it, in the driver and in the workers."""

import os

import prices

import tidegate as tg
from tidegate.testing import RecordLog

log = RecordLog(os.environ["LOG"])


def write(price):
    from prices import Price  # noqa: PLC0415  # a worker must find it by itself, late too

    assert isinstance(price, Price)
    log.settled(price)


pipeline = tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"]).map(prices.to_price).sink(write)
