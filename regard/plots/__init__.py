"""Attention to pictures: terminal, figures, the page."""
