"""Batches to weights: the loop, optimisers, schedules, checkpoints, ranks."""
