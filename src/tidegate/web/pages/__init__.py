"""The dashboard: the same frozen objects as pages that keep themselves up to date."""
