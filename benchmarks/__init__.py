"""Regard beside its peers: same work, one run, ratios."""
