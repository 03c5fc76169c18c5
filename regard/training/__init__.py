"""Batches to weights: the loop, the optimizer, schedules, checkpoints, ranks."""
