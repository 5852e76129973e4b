"""REST, metrics and pages over HTTP: the same frozen objects that the command line prints. Needs the extra `serve`."""
