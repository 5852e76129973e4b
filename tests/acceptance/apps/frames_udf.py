"""A module beside the program: Spark's workers must find it, too."""


def pass_on(batches):
    yield from batches
