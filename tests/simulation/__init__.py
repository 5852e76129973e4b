"""The driver's loop under simulation: the real driver against a simulated group, broker and rounds, in virtual time.

One seed is one schedule: `python -m tests.simulation SEED` runs it again and tells what happened.
"""
