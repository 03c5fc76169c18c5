"""Assignments, references, checks, and the names of mistakes."""
