"""Small random models with a tokenizer, and texts for them."""

import torch
from tokenizers import Tokenizer as Engine
from tokenizers import models, normalizers, pre_tokenizers, processors

from regard.config import ModelConfig, SpecialIds
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenizer_training import train_tokenizer
from regard.decoding.text_model import Model
from regard.model.transformer import build
from regard.petit import pairs
from tests.support.oracles import small

PAIRS = [(pair.french, pair.english) for pair in pairs(200)]
TOKENIZER = train_tokenizer((text for pair in PAIRS for text in pair), vocab_size=320)
MASK_TOKENIZER = train_tokenizer((text for pair in PAIRS for text in pair), vocab_size=320, mask=True)
TEXTS = [french for french, _ in PAIRS[:5]]
LABELS = ["A", "B", "C"]
ANSWERS = [english for _, english in PAIRS[:5]]


def random_model(**changes: object) -> Model:
    """A small model with random weights, large enough that it generates different texts for different inputs."""
    torch.manual_seed(3)
    config = small(vocab_size=TOKENIZER.size, **changes)
    network = build(config).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    pair, encoder = config.kind == "encoder-decoder", config.kind == "encoder"
    special = SpecialIds(end=(TOKENIZER.end,), start=TOKENIZER.pad if pair else None, separator=TOKENIZER.separator)
    tokenizer = TOKENIZER.with_template(after=[TOKENIZER.end]) if pair or encoder else TOKENIZER
    return Model(network, tokenizer, special)


def random_masked_model(**changes: object) -> Model:
    """A small masked language model with random weights: `random_model` with a mask."""
    model = random_model(kind="encoder", **changes)
    assert MASK_TOKENIZER.size == model.config.vocab_size
    tokenizer = MASK_TOKENIZER.with_template(before=[MASK_TOKENIZER.end], after=[MASK_TOKENIZER.end])
    return Model(model.network, tokenizer, SpecialIds(end=(tokenizer.end,), mask=tokenizer.mask))


def bert_tagger() -> Model:
    """A tagger like BERT's, whose tokenizer adds [CLS] and [SEP] and splits words into pieces."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "le", "chat", "##on", "##s", "dor", "##t", "."]
    engine = Engine(models.WordPiece({token: i for i, token in enumerate(vocabulary)}, unk_token="[UNK]"))
    engine.normalizer = normalizers.BertNormalizer()
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    engine.add_special_tokens(vocabulary[:4])
    torch.manual_seed(1)
    config = ModelConfig(
        kind="encoder",
        vocab_size=len(vocabulary),
        pad=0,
        d_model=16,
        heads=2,
        layers=2,
        d_ff=24,
        activation="gelu",
        positions="learned",
        max_length=32,
        scale_embeddings=False,
        embedding_norm=True,
        classes=3,
        classes_per="token",
    )
    network = build(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return Model(network, HuggingFaceTokenizer(engine), about={"classes": LABELS})
