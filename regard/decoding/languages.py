"""Multilingual translators: which ids tell the model the language of a source and the language to write.

NLLB and M2M100 read the code of its language before a source, mBART after it, and both write the code of the target's
language first: as a token that is forced, or in place of the start token.
"""

from dataclasses import replace

from regard.config import SpecialIds, did_you_mean
from regard.data.tokenizer import Tokenizer
from regard.errors import RegardError

MAX_NAMED_LANGUAGES = 6
"""Number of language codes that an error message lists as examples."""


def set_languages(
    tokenizer: Tokenizer, special: SpecialIds, source: str | None, target: str | None
) -> tuple[Tokenizer, SpecialIds]:
    """The tokenizer for sources in one language, and the special ids for targets in another; None changes nothing."""
    languages = tokenizer.languages
    if not languages:
        raise RegardError(
            f"source={source!r}, target={target!r}: this model has no language codes, so it translates between fixed "
            "languages: leave both out"
        )
    if source is not None:
        tokenizer = _for_sources(tokenizer, language_id(languages, source))
    if target is not None:
        id_ = language_id(languages, target)
        starts_with_language = special.start in languages.values()
        special = replace(special, start=id_) if starts_with_language else replace(special, first=id_)
    return tokenizer, special


def _for_sources(tokenizer: Tokenizer, language: int) -> Tokenizer:
    """The tokenizer with this language in its template, in the place of the present one or else before a text."""
    codes = set(tokenizer.languages.values())
    before, after = (
        tuple(language if id_ in codes else id_ for id_ in ids) for ids in (tokenizer.before, tokenizer.after)
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


def check_target_language(tokenizer: Tokenizer, special: SpecialIds) -> None:
    """A RegardError if the model can write several languages and none is chosen."""
    languages = tokenizer.languages
    if languages and not set(special.target_start) & set(languages.values()):
        raise RegardError(
            f"choose the language to translate to (target=..., --to): this model has {_examples(languages)}"
        )
