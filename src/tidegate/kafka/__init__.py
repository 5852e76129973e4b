"""Everything that talks to Kafka: the only importers of the client library."""
