"""Weights to and from other engines: Hugging Face folders, GGUF, CTranslate2."""
