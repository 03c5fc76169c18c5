"""Conversion of weights from and to other engines: Hugging Face folders, GGUF files and CTranslate2."""
