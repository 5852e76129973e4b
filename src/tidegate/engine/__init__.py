"""The engine: rounds on Spark, one member on the driver. Start reading at `driver.py`."""
