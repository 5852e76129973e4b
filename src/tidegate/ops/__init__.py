"""What can be seen and done around a pipeline. Loaders return plain frozen objects and never print."""
