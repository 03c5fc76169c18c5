"""Weights to text: greedy, beam and sampling over the key/value cache."""
