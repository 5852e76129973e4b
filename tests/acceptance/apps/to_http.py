"""Kafka to HTTP, and nothing else: the first error ends the run."""

import os

import tidegate as tg

pipeline = tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"]).sink(tg.http(os.environ["URL"]))
