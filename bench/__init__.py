"""How fast Tidegate is beside what people use today, in one run on one machine: `make bench`."""
