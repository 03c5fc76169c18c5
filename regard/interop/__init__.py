"""Conversion of weights from and to other engines: Hugging Face folders, GGUF files and CTranslate2."""

from regard.interop import ctranslate2_engine as ctranslate2_engine  # registers the engine
