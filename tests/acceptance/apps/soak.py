"""What most pipelines do, for hours: decode, check, write; one record in a thousand is set aside. KIND: the sink."""

import os

import tidegate as tg

KIND = os.environ["KIND"]


def check(order):
    if order["id"] % 1000 == 999:
        raise ValueError("no good")
    return order


def only_number(order):
    return {"id": order["id"]}


def numbers(df):
    return df.selectExpr("cast(get_json_object(cast(value as string), '$.id') as bigint) as id")


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


source = tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"])
checked = source.map(tg.json).map(check)
PATIENT = (tg.retry(1, wait="1ms"), tg.dead_letter())

if KIND == "object":
    pipeline = checked.sink(Numbers(os.environ["NUMBERS"])).on_error(*PATIENT)
elif KIND == "kafka":
    pipeline = checked.map(only_number).sink(tg.kafka(os.environ["OUT"], exactly_once=True)).on_error(*PATIENT)
elif KIND == "postgres":
    table = tg.postgres(os.environ["DSN"], table="numbers", columns={"id": "bigint not null"})
    pipeline = checked.map(only_number).sink(table).on_error(*PATIENT)
elif KIND == "parquet":
    pipeline = source.dataframe(numbers, every="1s").sink(tg.parquet(os.environ["OUT"])).on_error(tg.stop())
