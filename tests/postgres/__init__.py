"""The exactly-once store and sink, against a real PostgreSQL; no Spark, no Kafka."""
