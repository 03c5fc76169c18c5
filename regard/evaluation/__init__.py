"""Scores of models and translations: BLEU, chrF, perplexity, accuracy, and what each score may be compared with."""
