"""The offset table and what goes with it: written beside the work, never its truth."""
