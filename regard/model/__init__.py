"""Tokens to logits: attention, masks, positions, layers, the three Transformers."""
