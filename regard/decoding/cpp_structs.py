"""The structs and functions of the C++ sources (`regard/decoding/cpp`), as ctypes sees them.

The structs have the fields of the C++ ones, in the same order; a test compares their sizes.
"""

import ctypes
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p


class LinearStruct(Structure):
    """A linear layer with packed weights."""

    _fields_ = [
        ("weights", c_void_p),
        ("scales", c_void_p),
        ("bias", c_void_p),
        ("inputs", c_int32),
        ("outputs", c_int32),
    ]


class NormStruct(Structure):
    """LayerNorm or RMSNorm; a null weight means none."""

    _fields_ = [
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("epsilon", c_float),
        ("root_mean_square", c_int32),
    ]


class AttentionStruct(Structure):
    """The projections of an attention."""

    _fields_ = [("query_key_value", LinearStruct), ("key_value", LinearStruct), ("out", LinearStruct)]


class LayerStruct(Structure):
    """A layer of the encoder or decoder."""

    _fields_ = [
        ("self", AttentionStruct),
        ("cross", AttentionStruct),
        ("up", LinearStruct),
        ("down", LinearStruct),
        ("self_norm", NormStruct),
        ("cross_norm", NormStruct),
        ("feed_forward_norm", NormStruct),
    ]


class StackStruct(Structure):
    """The layers of the encoder or decoder."""

    _fields_ = [
        ("layers", POINTER(LayerStruct)),
        ("depth", c_int32),
        ("has_cross", c_int32),
        ("final_norm", NormStruct),
    ]


class EmbeddingStruct(Structure):
    """Token embeddings and positions."""

    _fields_ = [
        ("tokens", c_void_p),
        ("positions", c_void_p),
        ("scale", c_float),
        ("norm", NormStruct),
    ]


class ShapeStruct(Structure):
    """The sizes of a network and what its layers compute."""

    _fields_ = [
        *((name, c_int32) for name in ("width", "heads", "groups", "key_width", "value_width", "feed_forward")),
        *((name, c_int32) for name in ("activation", "gated", "pre_norm")),
        ("attention_scale", c_float),
        ("type", c_int32),
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("adjacent_pairs", c_int32),
    ]


class NetworkStruct(Structure):
    """A network."""

    _fields_ = [
        ("shape", ShapeStruct),
        ("encoder", StackStruct),
        ("decoder", StackStruct),
        ("source_embedding", EmbeddingStruct),
        ("target_embedding", EmbeddingStruct),
        ("output", LinearStruct),
    ]


class TaskStruct(Structure):
    """What to search for."""

    _fields_ = [
        *((name, c_int32) for name in ("inputs", "beam", "kept", "cache_length")),
        *((name, c_void_p) for name in ("sources", "source_lengths", "prompts", "prompt_lengths", "max_tokens")),
        ("end", c_void_p),
        ("end_count", c_int32),
        ("suppressed", c_void_p),
        ("suppressed_count", c_int32),
        ("min_tokens", c_int32),
        ("length_penalty", c_float),
        ("prefix", c_int32),
    ]


def declare_functions(library: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the types of its functions."""
    library.regard_packed_size.argtypes = [c_int32, c_int32, c_int32]
    library.regard_packed_size.restype = c_int64
    library.regard_pack.argtypes = [c_int32, c_void_p, c_int32, c_int32, c_void_p, c_void_p]
    library.regard_pack.restype = None
    library.regard_search_start.argtypes = [POINTER(NetworkStruct), POINTER(TaskStruct), c_int32]
    library.regard_search_start.restype = c_void_p
    library.regard_search_step.argtypes = [c_void_p, c_int32]
    library.regard_search_length.argtypes = [c_void_p, c_int32, c_int32]
    library.regard_search_read.argtypes = [c_void_p, c_int32, c_int32, c_void_p, c_void_p]
    library.regard_search_read.restype = None
    library.regard_search_free.argtypes = [c_void_p]
    library.regard_search_free.restype = None
    library.regard_network_size.restype = library.regard_task_size.restype = c_int64
    return library
