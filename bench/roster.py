"""Who takes part in which work, and how: as its documentation says, and tuned where that is known to help."""

from __future__ import annotations

from bench.model import Contender, Target, growth_name

SESSION = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 2_000}
"""Tidegate's default; the Kafka client's own is 45 seconds, which would only measure that number."""
QUICK_FETCH = {"fetch.queue.backoff.ms": 10}
WIDTH = 32

PLAIN, TUNED = "plain loop", "plain loop, tuned"
TIDEGATE, TIDEGATE_OWN = "Tidegate, json.loads", "Tidegate, tg.json"
LIVE, ROUNDS = "Tidegate", "Tidegate, no live channel"
WIDE = "Tidegate, parallel(128)"
QUIX, STREAMING = "Quix Streams", "Structured Streaming"
HEALER, RETRIABLE = "water-healer", "Retriable-Kafka-Client"
GENERATOR = "load generator (no Kafka)"
FEW, MANY = growth_name(1_000_000, 4, 100), growth_name(16_000_000, 4, 100)
WIDER, WIDEST = growth_name(1_000_000, 32, 100), growth_name(1_000_000, 256, 100)


def loop(name: str, **options: dict[str, object]) -> Contender:
    return Contender(name, "plain_loop", "own", options, {"B": 0.05} if name == PLAIN else {})


def tidegate(name: str, **options: dict[str, object]) -> Contender:
    return Contender(name, "tidegate_app", "own", options, warm_up_seconds=20.0)


CONTENDERS = (
    loop(
        PLAIN,
        A={"batch": 500},
        B={"batch": 500, "client": QUICK_FETCH},
        C={"batch": 1, "wait": 0.1},
        D={"batch": 500, "wait": 0.1, "client": SESSION},
    ),
    loop(TUNED, A={"batch": 5000, "client": QUICK_FETCH}, E={"batch": 5000, "client": QUICK_FETCH}),
    loop("plain loop, 32 threads by hand", B={"batch": 500, "threads": WIDTH, "client": QUICK_FETCH}),
    loop("plain loop, asyncio by hand", B={"batch": 500, "gather": WIDTH, "client": QUICK_FETCH}),
    Contender(QUIX, "quix", "quix", {"A": {}, "C": {}, "D": {"client": SESSION}}),
    Contender(
        "Quix Streams, exactly once",
        "quix",
        "quix",
        {"A": {"guarantee": "exactly-once"}, "D": {"guarantee": "exactly-once", "client": SESSION}},
    ),
    Contender(
        "Quix Streams, 32 threads by hand",
        "quix",
        "quix",
        {"B": {"threads": WIDTH, "application": {"commit_every": 500}, "client": QUICK_FETCH}},
    ),
    Contender(
        "FastStream",
        "faststream_app",
        "faststream",
        {"A": {"ack": "ack"}, "C": {"ack": "ack"}, "D": {"ack": "nack_on_error", "client": SESSION}},
        {"A": 0.02},
    ),
    Contender(
        "FastStream, batches",
        "faststream_app",
        "faststream",
        {
            "A": {"ack": "ack", "batch": 5000, "poll": 0.01, "client": QUICK_FETCH},
            "B": {"ack": "ack", "batch": 500, "poll": 0.01, "gather": WIDTH, "client": QUICK_FETCH},
        },
        {"A": 0.3},
    ),
    Contender(
        "streamz, batches",
        "streamz_app",
        "streamz",
        {
            "A": {"poll": "100ms", "most": 50_000, "client": QUICK_FETCH},
            "B": {"poll": "100ms", "most": 1000, "threads": WIDTH},
            "C": {},
            "D": {},
        },
        {"A": 0.5},
    ),
    Contender(
        HEALER,
        "water_healer",
        "water-healer",
        {"A": {}, "B": {"quiet": True}, "C": {}, "D": {"quiet": True, "interval": 1, "client": SESSION}},
        {"A": 0.1, "B": 0.05},
    ),
    Contender(
        RETRIABLE,
        "retriable",
        "retriable",
        {"A": {}, "B": {"pool": "thread", "workers": WIDTH}, "C": {}, "D": {"client": SESSION}},
        {"A": 0.02},
    ),
    Contender(
        STREAMING,
        "structured_streaming",
        "spark",
        {
            "A": {"most": 500_000},
            "B": {"most": 10_000, "threads": WIDTH, "body": "rdd"},
            "C": {"body": "rdd"},
            "D": {"body": "rdd", "most": 10_000},
        },
        warm_up_seconds=20.0,
    ),
    tidegate(TIDEGATE, A={"decoder": "json.loads"}, E={"decoder": "json.loads"}),
    tidegate(TIDEGATE_OWN, A={}),
    tidegate("Tidegate, parallel(32)", B={"width": WIDTH}),
    tidegate(WIDE, B={"width": 128}),
    tidegate(LIVE, C={}, D={}),
    tidegate(ROUNDS, C={"settings": {"live": False}}, D={"settings": {"live": False}}),
    Contender(GENERATOR, "load_generator", "own", {"B": {"connections": 64, "processes": 2}}),
)

TARGETS = (
    Target("A", "", "the tuned loop in one process", TIDEGATE, "rate", "at least", 1.3, TUNED),
    Target("A", "", "Structured Streaming", TIDEGATE, "rate", "at least", 3, STREAMING),
    Target("A", "", "Quix Streams", TIDEGATE, "rate", "at least", 2.5, QUIX),
    Target("A", "", "water-healer", TIDEGATE, "rate", "at least", 15, HEALER),
    Target("A", "", "Retriable-Kafka-Client", TIDEGATE, "rate", "at least", 100, RETRIABLE),
    Target("B", "", "the best peer", WIDE, "rate", "at least", 1.5, "best"),
    Target("B", "", "what server and cores allow", WIDE, "rate", "at least", 0.8, GENERATOR),
    Target("C", "20 per second", "p50 of the plain loop", LIVE, "p50", "at most", 2, PLAIN),
    Target("C", "20 per second", "p99 of the plain loop", LIVE, "p99", "at most", 3, PLAIN),
    Target("C", "20 per second", "p99 in ms without the live channel", ROUNDS, "p99", "at most", 100),
    Target("D", "", "seconds from kill -9 to the first new record", LIVE, "first_new", "at most", 15),
    Target("D", "", "seconds of work repeated (one commit interval)", LIVE, "repeated_seconds", "at most", 5),
    Target("D", "", "records lost", LIVE, "lost", "at most", 0),
    Target("E", MANY, "its own rate with 1 million records", TIDEGATE, "rate", "at least", 0.8, TIDEGATE, FEW),
    Target("E", MANY, "its own memory with 1 million records", TIDEGATE, "late", "at most", 1.2, TIDEGATE, FEW),
    Target("E", WIDEST, "its own idle time with 32 partitions", TIDEGATE, "idle", "at most", 8, TIDEGATE, WIDER),
    Target("A", "", "processor time of the plain loop per record (F)", TIDEGATE, "cpu", "at most", 1.5, PLAIN),
)
