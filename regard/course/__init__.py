"""Assignments on the Transformer, and a checker that runs a student's solution and names its mistakes."""
