"""A real Kafka for development and tests, and what it needs: Java and its jars."""
