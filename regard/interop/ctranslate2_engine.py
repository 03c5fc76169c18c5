"""CTranslate2 as an engine of `model.quick(engine="ctranslate2")`: Regard's API, with the searches of CTranslate2.

CTranslate2 ranks hypotheses by log-probability ÷ length^alpha. Its hypotheses are ranked again by Regard's penalty. Its
beam ends a search earlier than Regard's does, so that a beam can miss a translation which Regard finds.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard.decoding.cpu_engine import covers_options
from regard.decoding.decoding_state import SearchInputs
from regard.decoding.engine_registry import register_engine
from regard.decoding.options import Decoding
from regard.decoding.search import Hypothesis, finish_reason, length_penalty, make_hypothesis
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop.ctranslate2_export import export_ctranslate2, vocabularies

COMPUTE_TYPES = {"auto": "int8", "int8": "int8", "float32": "float32"}
"""The type in which CTranslate2 computes, by Regard's precision; its bfloat16 is no faster on a CPU than float32."""


class CTranslate2Engine:
    """An encoder–decoder in CTranslate2."""

    def __init__(self, model: Model, precision: str) -> None:
        if model.config.kind != "encoder-decoder" or model.device.type != "cpu":
            raise RegardError("engine='ctranslate2' is for encoder–decoders on a CPU")
        if precision not in COMPUTE_TYPES:
            raise RegardError(f"engine='ctranslate2' has no precision={precision!r}: use auto, int8 or float32")
        try:
            import ctranslate2  # type: ignore[import-untyped]
        except ImportError:
            raise RegardError("engine='ctranslate2' requires a package: pip install 'regard[interop]'") from None
        self.compute_type = COMPUTE_TYPES[precision]
        self.config = model.config
        self.first = model.special.first
        self.source_tokens, self.tokens = vocabularies(model)
        self.id_of = {token: id_ for id_, token in enumerate(self.tokens)}
        exported = replace(model, special=replace(model.special, first=None))
        with tempfile.TemporaryDirectory() as folder:
            export_ctranslate2(exported, Path(folder), self.compute_type)
            self.translator = ctranslate2.Translator(
                folder, compute_type=self.compute_type, intra_threads=torch.get_num_threads()
            )

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"CTranslate2 in {self.compute_type}"

    def supports(self, options: Decoding) -> bool:
        """Whether CTranslate2 gives the same results with these options.

        Sampling would not be reproducible, and with a minimum length CTranslate2 changes the scores.
        """
        return options.min_tokens == 0 and covers_options(options)

    def search(self, inputs: SearchInputs) -> list[list[Hypothesis]]:
        """The best hypotheses for each input, best first."""
        rules, options = inputs.rules, inputs.rules.options
        rows = [row[:length] for row, length in zip(inputs.tokens.tolist(), inputs.lengths.tolist(), strict=True)]
        longest = max(map(len, rows))
        if longest > self.config.max_length:
            raise RegardError(f"an input has {longest} tokens, and CTranslate2 has {self.config.max_length} positions")
        prefix = [] if self.first is None else [self.tokens[self.first]]
        limit = min(max(inputs.max_tokens), self.config.max_length)
        results = self.translator.translate_batch(
            [[self.source_tokens[id_] for id_ in row] for row in rows],
            target_prefix=[prefix] * len(rows) if prefix else None,
            beam_size=options.beam,
            num_hypotheses=options.beam,
            length_penalty=options.length_penalty if options.beam > 1 else 0.0,
            min_decoding_length=0,
            max_decoding_length=limit + len(prefix),
            suppress_sequences=[[self.tokens[id_]] for id_ in rules.suppressed.tolist()],
            end_token=[self.tokens[id_] for id_ in rules.end.tolist()],
            return_end_token=True,
            return_scores=True,
            max_batch_size=0,
        )
        return [
            self._hypotheses(result, number, most, inputs)
            for number, (result, most) in enumerate(zip(results, inputs.max_tokens, strict=True))
        ]

    def _hypotheses(self, result: Any, number: int, most: int, inputs: SearchInputs) -> list[Hypothesis]:
        rules, options = inputs.rules, inputs.rules.options
        end, hypotheses = set(rules.end.tolist()), []
        for tokens, score in zip(result.hypotheses, result.scores, strict=True):
            ids = [self.id_of[token] for token in tokens[0 if self.first is None else 1 :]][:most]
            if not ids or not score > -torch.inf:
                continue
            log_prob = score * len(ids) ** options.length_penalty if options.beam > 1 else score
            penalised = log_prob / length_penalty(len(ids), options.length_penalty)
            hypotheses.append(make_hypothesis(ids, log_prob, penalised, finish_reason(ids, end, None) or "length"))
        if not hypotheses:
            raise rules.no_token_error(number, -torch.inf)
        return sorted(hypotheses, key=lambda each: -each.penalised)[: options.n_best]


register_engine("ctranslate2", CTranslate2Engine)
