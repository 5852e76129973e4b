"""Random faults against a fleet of pipelines: `python -m tests.chaos --seconds 60 --seed 1`."""
