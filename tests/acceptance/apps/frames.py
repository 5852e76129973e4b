"""Numbers into Parquet, some of them bad; where it is asked to, it kills itself at one step of its second round."""

import json
import os
import signal
import time
from pathlib import Path

import frames_udf

import tidegate as tg
from tidegate.engine import frame_round
from tidegate.engine.frame_round import FrameWork

STEP = os.environ.get("KILL_AFTER", "")
DRIVER = os.getpid()
out, rounds = os.environ["OUT"], Path(os.environ["ROUNDS"])
written = []


def kill_after(step):
    """End without a word, once the first round of this life is behind it."""
    if step == STEP and len(written) >= 1:
        while "GO" in os.environ and not Path(os.environ["GO"]).exists():
            time.sleep(0.05)
        os.kill(DRIVER, signal.SIGKILL)


def kill_in_the_write(batches):
    for batch in batches:
        yield batch
        os.kill(DRIVER, signal.SIGKILL)


def check(df):
    kill_after("planned")
    return tg.bad(df, "cast(cast(value as string) as int) % 50 = 7", "a seven").select("partition", "offset")


def write(df, round):  # noqa: A002  # the documented name
    with rounds.open("a", encoding="utf-8") as file:
        ranges = [[one.partition, one.start, one.end] for one in round.ranges]
        file.write(json.dumps([DRIVER, round.id, ranges, round.is_repeat]) + "\n")
    is_to_die = STEP == "writing" and len(written) >= 1
    touched = df.mapInArrow(kill_in_the_write if is_to_die else frames_udf.pass_on, df.schema)
    tg.parquet(out)(touched, round)
    kill_after("written")


write_dead = frame_round.write_dead
done = FrameWork.done


def write_dead_and_die(letters, job):
    count = write_dead(letters, job)
    kill_after("letters")
    return count


def done_and_die(self, seconds):
    kill_after("done")
    written.append(self.id)
    return done(self, seconds)


frame_round.write_dead = write_dead_and_die
FrameWork.done = done_and_die

pipeline = (
    tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"]).dataframe(check, records=400).sink(tg.write(write))
)
