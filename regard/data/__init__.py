"""Files to tokens to batches: corpora, tokenizers, batching."""
