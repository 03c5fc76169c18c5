"""How much of anything one may ask for. Each bound has an answer that says so."""

BODY = 1_000_000
"""bytes of a request's body: 413"""
LINGER = 2
"""seconds, and times as many bytes, that more of such a body is taken, and thrown away, so that the answer is read"""
CHARACTERS = 10_000
"""of all texts of a request together"""
BATCH = 64
"""texts or prompts of a request, and of what is decoded at once"""
BATCH_CHARACTERS = 2_000
"""Characters that are decoded at once, while nobody else is heard: about a second on two cores."""
BATCH_TOKENS = 8_000
"""Positions of a batch that is decoded: hypotheses × the longest source."""
PART_CHARACTERS = 500
"""Characters from which a text is cut at its sentences, so that others take turns with its parts."""
BEAM = 16
"""width of a beam, and so alternatives too"""
SEARCHED = 40_000
"""characters of a request × the width of its beam: a wide beam takes as much longer"""
LOOKED_AT = 300
"""characters of a text whose attention is shown"""
WEIGHTS = 1_000_000
"""of attention in one answer: at most 8 bytes each"""
LOOK_COST = 5
"""How many times as much as a character to translate a character counts whose attention is shown."""
NEW_TOKENS = 1_024
"""that a language model adds"""
PLACES = 16_384
"""tokens, read and written, of all that a language model writes at a time: its cache holds them"""
STOPS, STOP_CHARACTERS = 4, 64
"""strings to stop at, and the length of each"""
SHOWN = 200
"""tokens of a distribution"""
QUEUE, QUEUE_CHARACTERS = 256, 100_000
"""texts that wait for a model, and their length in all: 429"""
DEADLINE = 60.0
"""seconds that a request may take: 503"""
SLOW = 10.0
"""Seconds in which a request's head must arrive, and after which the progress of a body or an answer is checked."""
RATE = 5_000
"""Bytes a second at which a request's body must arrive and an answer must be read, on average over `SLOW` seconds: 408,
or the connection is closed."""
CONNECTIONS = 1_000
"""Sockets that are open at once: 503. Fewer where the process may open fewer files."""
COMPRESSED = 1_000
"""Bytes from which an answer is compressed, for clients that accept it."""
PREFIX_BYTES = 128_000_000
"""Bytes of keys and values that a model keeps of texts whose next token was asked for."""
DRAIN = 15.0
"""seconds that are left to requests when the server is told to end; it has ended 5 s later"""
