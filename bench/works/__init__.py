"""The works: what is done, how it is checked, what is measured."""
