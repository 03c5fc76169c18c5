"""How often something happens, in translations between English and French."""

import pytest

from regard.decoding.frequencies import with_frequencies
from regard.decoding.verbatim import check_verbatim


@pytest.mark.parametrize(
    ("target_language", "source", "translation", "expected"),
    [
        ("en", "Un comprimé toutes les 6 h.", "A tablet all 6 h.", "A tablet every 6 hours."),
        ("en", "Un comprimé toutes les 6 heures.", "A tablet every six o'clock.", "A tablet every six hours."),
        ("en", "Il sonne toutes les 6h.", "It rings every 6:00.", "It rings every 6 hours."),
        ("en", "Toutes les 30 s, elle clignote.", "All 30 s, it flashes.", "Every 30 s, it flashes."),
        ("en", "Toutes les 10 min", "All the ten minutes", "Every ten minutes"),
        ("en", "toutes les 12 h", "every 12 hours", "every 12 hours"),
        ("en", "toutes les 2 h et les 6 chats", "every 2 hours and all 6 cats", "every 2 hours and all 6 cats"),
        ("en", "À 6 h, tous les chats", "Every 6:00, all cats", "Every 6:00, all cats"),
        (
            "en",
            "toutes les 2 h, tous les chats",
            "all 2 h, all cats, all the boys",
            "every 2 hours, all cats, all the boys",
        ),
        ("fr", "every 6 h", "tous les 6 h", "toutes les 6 h"),
        ("fr", "every 2 h, all cats", "toutes les 2 h, tous les chats", "toutes les 2 h, tous les chats"),
        ("fr", "Every 10 minutes", "Tous les dix minutes", "Toutes les dix minutes"),
        ("fr", "every 10 minutes, every 3 days", "tous les 3 jours", "tous les 3 jours"),
        ("fr", "all 6 hours", "tous les 6 h", "tous les 6 h"),
    ],
)
def test_frequencies(target_language: str, source: str, translation: str, expected: str) -> None:
    assert with_frequencies(translation, source, target_language) == expected
    languages = ("fr", "en") if target_language == "en" else ("en", "fr")
    assert with_frequencies(check_verbatim(translation, source, *languages).text, source, target_language) == expected
