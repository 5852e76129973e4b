"""What Spark says of a finished batch, in the shapes in which it says it."""

from __future__ import annotations

import json

from tidegate.engine.query_progress import read_progress
from tidegate.records import Partition


def progress(*sources: dict[str, object]) -> str:
    return json.dumps({"id": "q-1", "runId": "r", "batchId": 7, "sources": list(sources)})


def kafka(end: object, topic: str = "orders") -> dict[str, object]:
    return {"description": f"KafkaV2[Subscribe[{topic}]]", "startOffset": None, "endOffset": end}


def test_the_ends_of_a_batch_are_read_from_an_object_and_from_its_text() -> None:
    ends = {"orders": {"0": 17, "1": 0}}
    batch, same = (read_progress(progress(kafka(end))) for end in (ends, json.dumps(ends)))
    assert batch is not None
    assert batch == same
    assert (batch.query, batch.batch) == ("q-1", 7)
    assert batch.ends == {Partition("orders", 0): 17, Partition("orders", 1): 0}
    assert json.loads(batch.metadata) == {"streaming_query": "q-1", "batch": 7}


def test_a_query_without_kafka_says_nothing() -> None:
    rate: dict[str, object] = {"description": "RateStreamV2[rowsPerSecond=1]", "endOffset": 12}
    files: dict[str, object] = {"description": "FileStreamSource[file:/in]", "endOffset": {"logOffset": 3}}
    assert read_progress(progress()) is None
    assert read_progress(progress(rate, files)) is None
    assert read_progress(progress(kafka(None))) is None


def test_a_partition_that_is_read_twice_counts_up_to_where_both_are() -> None:
    batch = read_progress(progress(kafka({"orders": {"0": 9}}), kafka({"orders": {"0": 5}, "other": {"0": 2}})))
    assert batch is not None
    assert batch.ends == {Partition("orders", 0): 5, Partition("other", 0): 2}


def test_a_place_that_is_none_is_left_out() -> None:
    batch = read_progress(progress(kafka({"orders": {"0": -2, "1": 4}})))
    assert batch is not None
    assert batch.ends == {Partition("orders", 1): 4}
