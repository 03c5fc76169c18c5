"""Benchmarks of Regard next to other engines: the same work in the same run, reported as ratios."""
