"""The pipelines that chaos is let loose on: KIND says which. Every effect says where it came from and who made it."""

import asyncio
import os
import time

import tidegate as tg
from tidegate.testing import RecordLog, Switch

KIND = os.environ["KIND"]
WORK_SECONDS = float(os.environ["WORK_SECONDS"])
log = RecordLog(os.environ["LOG"])
switch = Switch(os.environ["LOG"])
DRIVER, RUN = os.getpid(), log.run


def number_of(value):
    return int(value)


def work(value):
    """Some never succeed, some only at their second pass, and all take their time: faults are to meet work."""
    time.sleep(WORK_SECONDS)
    number = number_of(value)
    record = tg.current()
    if number % 97 == 13:
        raise ValueError("never any good")
    if number % 31 == 7 and record.attempt == 1:
        raise ValueError("no good yet")
    return stamped(record, number)


def fine(value):
    """None fails, and they are quick: thousands of them at once are what fills a commit."""
    time.sleep(0.003)
    return stamped(tg.current(), number_of(value))


def stamped(record, number):
    return {
        "id": number,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "stable_id": record.stable_id,
        "attempt": record.attempt,
        "pid": os.getpid(),
        "driver": DRIVER,
        "run": RUN,
    }


def write(value):
    switch.meet()
    log.settled(value)


async def write_async(value):
    await asyncio.sleep(0.002 * (value["id"] % 7))
    switch.meet()
    log.settled(value)


def write_or_wait(value):
    # By its offset: what fills a commit is the stretches between those of one partition that wait. Few wait, since
    # they are tried again and again; fewer would take a longer log to fill it.
    if value["offset"] % 8 == 0 and switch.is_on("fill metadata"):
        raise ValueError("this one waits")
    switch.meet()
    log.settled(value)


class Archive:
    """An object that gets lists, and takes all of one or nothing: the list is halved until the culprit is alone."""

    def open(self):
        self.given = 0

    def write(self, records):
        switch.meet()
        if any(one.value["id"] % 43 == 5 and one.attempt == 1 for one in records):
            raise ValueError("not yet")
        log.settled(records)
        self.given += len(records)

    def close(self):
        self.given = 0


def twins(value):
    return [{**value, "child": number} for number in range(2)]


def write_again(value):
    """The second sink: some values are refused here at first, and some for good, though the first one has them."""
    switch.meet()
    if value["child"] == 1 and value["id"] % 41 == 3 and tg.current().attempt == 1:
        raise ValueError("the second sink, not yet")
    if value["child"] == 0 and value["id"] % 89 == 11:
        raise ValueError("the second sink, never")
    log.settled(value)


def numbers(df):
    return df.selectExpr("cast(cast(value as string) as bigint) as id", "topic", "partition", "offset")


source = tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"])
noted = source.map(log.began)
PATIENT = (tg.hold(), tg.retry(2, wait="20ms"), tg.dead_letter())

if KIND == "function":
    pipeline = noted.map(work).sink(write).on_error(*PATIENT)
elif KIND == "keys":
    pipeline = noted.map(work).sink(write_async).parallel(8, order="key").on_error(*PATIENT)
elif KIND == "later":
    row = (tg.hold(), tg.retry_later("1s", "3s"), tg.dead_letter())
    pipeline = noted.map(work).sink(write).parallel(4, order="none").on_error(*row)
elif KIND == "ragged":
    row = (tg.hold(), tg.retry(1000, wait="2s", factor=1, limit="2s"), tg.dead_letter())
    pipeline = noted.map(fine).sink(write_or_wait).parallel(8, order="none").on_error(*row)
elif KIND == "lists":
    pipeline = (
        noted.map(work)
        .batch(10, within="200ms", records=True)
        .sink(Archive())
        .parallel(4, order="key")
        .on_error(*PATIENT)
    )
elif KIND == "children":
    pipeline = noted.map(work).flat_map(twins).sink(write).sink(write_again).on_error(*PATIENT)
elif KIND == "http":
    pipeline = noted.map(work).sink(tg.http(os.environ["URL"])).parallel(8, order="key").on_error(*PATIENT)
elif KIND == "kafka":
    pipeline = noted.map(work).sink(tg.kafka(os.environ["OUT"])).on_error(*PATIENT)
elif KIND == "kafka-once":
    row = (tg.hold(), tg.retry_later("1s"), tg.dead_letter())
    sink = tg.kafka(os.environ["OUT"], exactly_once=True)
    pipeline = noted.map(work).sink(sink).parallel(4, order="none").on_error(*row)
elif KIND == "kafka-ordered":
    sink = tg.kafka(os.environ["OUT"], exactly_once=True)
    pipeline = noted.map(work).sink(sink).on_error(*PATIENT)
elif KIND == "postgres":
    columns = {"id": "bigint not null", "topic": "text", "partition": "int", "offset": "bigint"}
    table = tg.postgres(os.environ["DSN"], table="numbers", columns=columns)
    pipeline = noted.map(work).map(lambda one: {name: one[name] for name in columns}).sink(table).on_error(*PATIENT)
elif KIND in ("frames", "jdbc"):
    if KIND == "frames":
        writer = tg.parquet(os.environ["OUT"])
    else:
        writer = tg.jdbc(os.environ["URL"], "numbers", user="postgres", driver="org.postgresql.Driver")
    row = (tg.hold(), tg.retry(1000, wait="1s", limit="2s"), tg.stop())
    pipeline = source.dataframe(numbers, every="1s").sink(writer).on_error(*row)
