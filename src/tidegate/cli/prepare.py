"""`tidegate prepare`: let Spark start sooner on this machine, or in an image that is made of it."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate import class_archives
from tidegate.cli.common import examples, say
from tidegate.engine.spark import checked_pyspark
from tidegate.errors import SettingsError
from tidegate.java import find_java
from tidegate.machine import spark_home


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command(
        "prepare",
        short_help="Let Spark start a third sooner, from now on.",
        epilog=examples(
            "prepare",
            "prepare --again",
        ),
    )(prepare)


def prepare(
    again: Annotated[bool, typer.Option("--again", help="Make the archives anew, also where they fit.")] = False,
) -> None:
    """Keep the classes that Spark's Java loads in an archive (180 MB in the cache), so that runs start sooner.

    Spark is started twice for that, which takes about a minute. Do it once on a machine, or when an image is built.
    An update of Java or of PySpark makes an archive useless, never harmful: do it again then.
    """
    checked_pyspark()
    if home := spark_home():
        raise SettingsError(
            f"SPARK_HOME={home} names the Spark to start, and archives are made of the installed PySpark alone",
            "unset SPARK_HOME, here and for runs",
        )
    java = find_java()
    places = class_archives.archives_of(java)
    if places.are_there and not again:
        say(f"it is prepared: {places.megabytes:.0f} MB in {places.spark.parent}")
        return
    say("Spark starts twice, to leave its classes behind and to prove that they serve ...")
    took = class_archives.make(java)
    say(f"Spark does its first job after {took:.1f} s now")
    say(f"written: {places.megabytes:.0f} MB in {places.spark.parent}")
