"""Files to tokens to batches: corpora, tokenizers, the bundled bilingual world."""
