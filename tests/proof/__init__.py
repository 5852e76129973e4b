"""What takes so long that only `make proof` runs it."""
