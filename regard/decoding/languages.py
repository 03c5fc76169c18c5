"""Multilingual translators: which ids tell the model the language of a source and the language to write.

NLLB and M2M100 read the code of its language before a source, mBART after it, and both write the code of the target's
language first: as a token that is forced, or in place of the start token.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regard.config import ModelConfig, SpecialIds, did_you_mean
from regard.data.tokenizer import Tokenizer
from regard.errors import RegardError
from regard.formatting import quoted

MULTILINGUAL_TYPES = ("m2m_100", "mbart")
"""Hugging Face types of multilingual translators. A tokenizer with language codes does not make a model multilingual:
another model may have been trained with it, without any codes in its text."""
MAX_NAMED_LANGUAGES = 6
"""Number of language codes that an error message lists as examples."""


def language_ids(config: ModelConfig, tokenizer: Tokenizer | None, about: Mapping[str, Any]) -> dict[str, int]:
    """The ids of the languages between which a multilingual model translates, by code; empty for other models."""
    is_multilingual = config.kind == "encoder-decoder" and about.get("model_type") in MULTILINGUAL_TYPES
    return tokenizer.languages if is_multilingual and tokenizer is not None else {}


def set_languages(
    tokenizer: Tokenizer, special: SpecialIds, languages: dict[str, int], source: str | None, target: str | None
) -> tuple[Tokenizer, SpecialIds]:
    """The tokenizer for sources in one language, and the special ids for targets in another; None changes nothing."""
    if source is not None:
        tokenizer = _for_sources(tokenizer, set(languages.values()), language_id(languages, source))
    if target is not None:
        id_ = language_id(languages, target)
        starts_with_language = special.start in languages.values()
        special = replace(special, start=id_) if starts_with_language else replace(special, first=id_)
    return tokenizer, special


def check_fixed_languages(fixed: object, source: str | None, target: str | None) -> None:
    """Raise a RegardError unless a model that is not multilingual translates between these languages."""
    pair = fixed if isinstance(fixed, list) and len(fixed) == 2 else [None, None]
    if source in (None, pair[0]) and target in (None, pair[1]):
        return
    given = " and ".join(repr(code) for code in (source, target) if code is not None)
    known = f"it translates from {quoted(pair[0])} to {quoted(pair[1])}" if all(pair) else "no language can be chosen"
    raise RegardError(f"{given}: this model is not multilingual, {known}: leave the languages out")


def chosen_languages(
    tokenizer: Tokenizer, special: SpecialIds, languages: dict[str, int]
) -> tuple[str | None, str | None]:
    """The language that the tokenizer writes around a source and the one that targets begin with; None if there is
    none."""
    codes = {id_: code for code, id_ in languages.items()}
    source, target = (
        next((codes[id_] for id_ in ids if id_ in codes), None)
        for ids in ((*tokenizer.before, *tokenizer.after), special.target_start)
    )
    return source, target


def _for_sources(tokenizer: Tokenizer, languages: set[int], language: int) -> Tokenizer:
    """The tokenizer with this language in its template, in the place of the present one or else before a text."""
    before, after = (
        tuple(language if id_ in languages else id_ for id_ in ids) for ids in (tokenizer.before, tokenizer.after)
    )
    if language not in (*before, *after):
        before = (language, *before)
    return tokenizer.with_template(before, after)


def language_id(languages: dict[str, int], code: str) -> int:
    """The id of a language; a RegardError with a suggestion if the model does not know it."""
    if not isinstance(code, str) or code not in languages:
        raise RegardError(f"this model does not know the language {code!r}: {_suggestion(languages, str(code))}")
    return languages[code]


def _suggestion(languages: dict[str, int], code: str) -> str:
    suggestion = did_you_mean(code, languages)
    return suggestion if suggestion.startswith("did you mean") else f"it has {_examples(languages)}"


def _examples(languages: dict[str, int]) -> str:
    codes = list(languages)
    more = f" and {len(codes) - MAX_NAMED_LANGUAGES} more" if len(codes) > MAX_NAMED_LANGUAGES else ""
    return ", ".join(codes[:MAX_NAMED_LANGUAGES]) + more


def check_target_language(special: SpecialIds, languages: dict[str, int], option: str) -> None:
    """A RegardError that names `option` if the model can write several languages and none is chosen."""
    if languages and not set(special.target_start) & set(languages.values()):
        raise RegardError(f"choose the language to translate to with {option}: this model has {_examples(languages)}")
