"""Experiments that answer questions about attention by measurement."""
