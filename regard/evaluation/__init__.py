"""Text to scores: BLEU, chrF, perplexity, accuracy, each with what it may be compared to."""
