"""Limits on requests, queues and connections. A request beyond a limit gets an error that names the limit."""

MAX_BODY_BYTES = 1_000_000
"""Maximum size of a request's body in bytes. Beyond it the status is 413."""
DISCARD_SECONDS = 2
"""Seconds for which the rest of a body that is too large is read and discarded, so that the client reads the response.
At most this many times `MAX_BODY_BYTES` are discarded."""
MAX_REQUEST_CHARACTERS = 10_000
"""Maximum total length of a request's texts, in characters."""
MAX_TEXTS = 64
"""Maximum number of texts or prompts in a request, and of texts that are decoded in one batch."""
MAX_BATCH_CHARACTERS = 2_000
"""Maximum number of characters decoded in one batch, while other requests wait: about a second on two cores."""
MAX_BATCH_TOKENS = 8_000
"""Maximum size of a decoded batch: number of hypotheses × length of the longest source, in tokens."""
SPLIT_CHARACTERS = 500
"""Length in characters above which a text is split into sentences, so that its parts alternate with other requests."""
MAX_BEAM = 16
"""Maximum beam width, and so maximum number of alternatives."""
MAX_BEAM_CHARACTERS = 40_000
"""Maximum of a request's characters × its beam width: decoding time grows with both."""
MAX_ATTENTION_CHARACTERS = 300
"""Maximum length in characters of a text whose attention is shown."""
MAX_ATTENTION_WEIGHTS = 1_000_000
"""Maximum number of attention weights in a response. Each takes at most 8 bytes."""
MAX_SILENCED_HEADS = 2_000
"""Maximum number of heads that a request silences."""
MAX_WEIGHT_CHANGES = 100
"""Maximum number of attention weights that a request replaces."""
MAX_GIVEN_TOKENS = 1_000
"""Maximum number of token ids in a request: of the beginning of a translation, or of a translation."""
EFFECTS_COST = 60
"""Weight in the queue of a character of a text for which the effect of every head is measured, relative to a character
that is translated."""
ATTENTION_COST = 5
"""Weight in the queue of a character whose attention is shown, relative to a character that is translated."""
MAX_NEW_TOKENS = 1_024
"""Maximum number of tokens that a language model generates for a prompt."""
MAX_CACHE_TOKENS = 16_384
"""Maximum number of tokens, read and generated, in a language model's cache, over all requests being generated."""
MAX_STOP_STRINGS, MAX_STOP_CHARACTERS = 4, 64
"""Maximum number of stop strings in a request, and the maximum length of each."""
MAX_SCORED_CHARACTERS = 2_000
"""Maximum length in characters of a text whose tokens are scored."""
MAX_DISTRIBUTION_TOKENS = 200
"""Maximum number of tokens in a distribution of next tokens."""
MAX_FILL_CHARACTERS, MAX_FILLINGS = 1_000, 50
"""Maximum length in characters of a text with masks, and maximum number of tokens returned for each mask."""
MAX_FILLINGS_PER_TEXT = 500
"""Maximum number of tokens returned for all masks of a text: each comes with the complete text."""
MAX_CLASSES = 100
"""Maximum number of classes in the response for a text: the most likely ones."""
MAX_CURVE_POINTS, MAX_CURVE_VALIDATIONS = 1_000, 200
"""Maximum number of points of a training curve, and of validations with their samples, in the description of a run."""
MAX_LOG_BYTES = 256_000_000
"""Maximum size in bytes of a run's log. What follows is not shown."""
FRAME_CACHE_BYTES = 32_000_000
"""Maximum size in bytes of the attention of snapshots that is kept to be sent again."""
MAX_CONTINUATION_TOKENS = 16
"""Number of tokens with which a snapshot of a language model continues a text."""
MAX_QUEUED_TEXTS, MAX_QUEUED_CHARACTERS = 256, 100_000
"""Maximum number of texts that wait for a model, and their maximum total length. Beyond either the status is 429."""
REQUEST_TIMEOUT_SECONDS = 60.0
"""Maximum duration of a request in seconds. Beyond it the status is 503."""
PROGRESS_SECONDS = 10.0
"""Seconds in which a request's headers must arrive, and after which the progress of a body or response is checked."""
MIN_BYTES_PER_SECOND = 5_000
"""Minimum rate at which a body must arrive and a response must be read, averaged over `PROGRESS_SECONDS`. Below it the
status is 408, or the connection is closed."""
MAX_CONNECTIONS = 1_000
"""Maximum number of open connections; fewer if the process may open fewer files. Beyond it the status is 503."""
MIN_COMPRESSED_BYTES = 1_000
"""Size in bytes from which a response is compressed."""
PREFIX_CACHE_BYTES = 128_000_000
"""Maximum size in bytes of the keys and values that a model keeps for texts whose next token was requested."""
SHUTDOWN_SECONDS = 15.0
"""Seconds that running requests get to finish when the server is asked to stop. It exits at most 5 s later."""
