"""`regard demo`: train, score and inspect a small translator, as a story in chapters."""
