"""FastStream over confluent-kafka. Options: ack (default, ack, nack_on_error), batch, poll, gather, client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from faststream import FastStream
from faststream.confluent import KafkaBroker
from faststream.middlewares import AckPolicy

from bench.contenders.common import read_job, say_ready, sink_of

job = read_job()
sink = sink_of(job)
broker = KafkaBroker(job.bootstrap, logger=None, **({"config": job.client} if job.client else {}))
app = FastStream(broker, logger=None)
how: dict[str, Any] = {"group_id": job.group, "auto_offset_reset": "earliest"}
if job.option("ack", "default") != "default":
    how["ack_policy"] = AckPolicy(job.option("ack"))
if job.option("batch"):
    how.update(batch=True, max_records=job.option("batch"))
if job.option("poll"):
    how["polling_interval"] = job.option("poll")
session: Any = None


async def post(record: dict[str, Any]) -> None:
    global session  # noqa: PLW0603  # made on the loop that uses it
    import aiohttp  # noqa: PLC0415  # only this way needs it

    if session is None:
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=job.option("gather")))
    async with session.post(job.url, data=json.dumps(record)) as response:
        await response.read()
        assert response.status == 200


if job.option("batch"):

    @broker.subscriber(job.topic, **how)  # type: ignore[untyped-decorator]  # no types here
    async def handle_batch(records: list[dict[str, Any]]) -> None:
        if job.option("gather"):
            await asyncio.gather(*map(post, records))
        else:
            for record in records:
                sink(record)

else:

    @broker.subscriber(job.topic, **how)  # type: ignore[untyped-decorator]  # as above
    async def handle(record: dict[str, Any]) -> None:
        sink(record)


async def main() -> None:
    say_ready()
    await app.run()  # it ends in order on SIGTERM by itself
    if session is not None:
        await session.close()


if __name__ == "__main__":
    asyncio.run(main())
