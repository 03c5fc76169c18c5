"""A model with separate vocabularies that computes what a model with a shared one computes."""

import json

import torch
from tokenizers import Tokenizer as Engine

from regard.config import SpecialIds
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenizer import END, PAD
from regard.data.tokenizer_pair import TokenizerPair
from regard.decoding.text_model import Model
from regard.model.transformer import build
from tests.support.oracles import small
from tests.support.text_models import TOKENIZER, random_model

EXTRA_IDS = 64
NEVER = -1e4
"""Output bias of an id that has no probability."""


def renumbered(tokenizer: HuggingFaceTokenizer) -> tuple[HuggingFaceTokenizer, list[int]]:
    """The same pieces under other ids, with more ids before <pad>; and the new id of each old one.

    Only </s> keeps its id, so that source and target cannot be confused unnoticed.
    """
    description = json.loads(tokenizer.engine.to_str())
    vocabulary, added = description["model"]["vocab"], description["added_tokens"]
    first, last = 1, len(vocabulary) - 1
    new_id = [first + last - id_ if first <= id_ <= last else id_ for id_ in range(tokenizer.size)]
    new_id[-1] += EXTRA_IDS
    description["model"]["vocab"] = {piece: new_id[id_] for piece, id_ in vocabulary.items()}
    extra = [added[-1] | {"content": f"<extra{i}>", "id": tokenizer.size - 1 + i} for i in range(EXTRA_IDS)]
    description["added_tokens"] = [token | {"id": new_id[token["id"]]} for token in added]
    description["added_tokens"][-1:-1] = extra
    return HuggingFaceTokenizer(Engine.from_str(json.dumps(description))), new_id


def equal_models(**changes: object) -> tuple[Model, Model]:
    """A model with a shared vocabulary, and one with the same weights whose target has its own ids."""
    shared = random_model(output_bias=True, **changes)
    target, new_id = renumbered(TOKENIZER)
    network = build(small(vocab_size=TOKENIZER.size, target_vocab_size=target.size, output_bias=True, **changes))
    network = network.double().eval()
    state = shared.network.state_dict()
    rows = torch.randn(target.size, state["embedding.tokens.weight"].size(1), dtype=torch.float64)
    rows[new_id] = state["embedding.tokens.weight"]
    bias = torch.full((target.size - 1,), NEVER, dtype=torch.float64)
    bias[new_id[:-1]] = state["output_bias"]
    state |= {"target_embedding.tokens.weight": rows, "output_bias": bias}
    network.load_state_dict(state)
    special = SpecialIds(end=(target.id_of(END),), start=target.id_of(PAD))
    tokenizer = TokenizerPair(TOKENIZER.with_template(after=[TOKENIZER.end]), target)
    return shared, Model(network, tokenizer, special)
