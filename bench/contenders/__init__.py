"""One program per contender, run as a process of its own: `python -m bench.contenders.NAME JOB`, JOB being JSON.

They run in environments that have nothing of Tidegate, so what they share needs Python's own library only.
"""
