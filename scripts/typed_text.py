"""Sentences as people type them in haste, and sentences with prices, times and telephone numbers."""

import random
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping

Pair = tuple[str, str]
"""A source and its translation."""

ABBREVIATIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "fr": {
        "s'il te plaît": ("stp",), "s'il vous plaît": ("svp",), "salut": ("slt",), "bonjour": ("bjr",),
        "toujours": ("tjrs", "tjs"), "beaucoup": ("bcp",), "pourquoi": ("pk", "pq"), "parce que": ("pcq",),
        "quand": ("qd",), "désolé": ("dsl",), "désolée": ("dsl",), "rendez-vous": ("rdv",), "quelqu'un": ("qqn",),
        "quelque chose": ("qqch",), "maintenant": ("mtn",), "vraiment": ("vrmt",),
        "je suis": ("chui", "jsuis", "j suis"),
        "je ne sais pas": ("jsp", "chais pas", "je sais pas"), "il y a": ("y a", "ya"), "tu es": ("t'es", "tes"),
        "tu as": ("t'as", "tas"), "quoi": ("koi",), "week-end": ("weekend", "we"), "message": ("msg",),
        "demain": ("2main",), "problème": ("pb",), "restaurant": ("resto",), "appartement": ("appart",),
        "petit-déjeuner": ("petit dej",), "c'est": ("c",), "pendant": ("pdt",), "jamais": ("jms",), "tout": ("tt",),
        "je pense": ("jpense",), "je vais": ("jvais",), "je peux": ("jpeux",), "celui": ("çui",),
    },
    "en": {
        "you": ("u",), "your": ("ur",), "you are": ("youre", "ur"), "are": ("r",), "please": ("pls", "plz"),
        "thanks": ("thx",), "thank you": ("thank u", "ty"), "tomorrow": ("tmrw", "tmr"), "because": ("cuz", "bc"),
        "going to": ("gonna",), "want to": ("wanna",), "got to": ("gotta",), "i don't know": ("idk", "i dunno"),
        "see you": ("cya", "see ya"), "people": ("ppl",), "tonight": ("2nite",), "today": ("2day",), "okay": ("k",),
        "to be honest": ("tbh",), "message": ("msg",), "really": ("rly",), "with": ("w/",), "for": ("4",),
        "birthday": ("bday",), "weekend": ("wknd",), "about": ("abt",), "before": ("b4",), "great": ("gr8",),
        "let me": ("lemme",), "give me": ("gimme",), "kind of": ("kinda",), "it is": ("its",), "i will": ("ill",),
    },
}  # fmt: skip
"""What people write for words in messages, by language; words in lower case."""
MONTHS = {
    "fr": ["janvier", "février", "mars", "avril", "mai", "juin", "juillet", "août",
           "septembre", "octobre", "novembre", "décembre"],
    "en": ["January", "February", "March", "April", "May", "June", "July", "August",
           "September", "October", "November", "December"],
}  # fmt: skip
DAYS = {
    "fr": ["lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche"],
    "en": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
}
WITH_NUMBERS = (
    ("Ça coûte {price}.", "It costs {price}."),
    ("Ce vélo coûte {price}, mais il est à {percent} de réduction.",
     "This bike costs {price}, but it is {percent} off."),
    ("Le billet est passé de {price} à {price2}.", "The ticket went from {price} to {price2}."),
    ("J'ai payé {price} pour deux nuits.", "I paid {price} for two nights."),
    ("Vous me devez {price}, s'il vous plaît.", "You owe me {price}, please."),
    ("Combien coûte ce téléphone ? {price} ?", "How much is this phone? {price}?"),
    ("Le loyer est de {price} par mois.", "The rent is {price} a month."),
    ("Un café à {price}, c'est trop cher !", "A coffee for {price} is too expensive!"),
    ("Elle gagne {price} par an.", "She earns {price} a year."),
    ("Il me reste {price} sur mon compte.", "I have {price} left in my account."),
    ("Appelez-moi au {phone}.", "Call me at {phone}."),
    ("Mon numéro est le {phone}.", "My number is {phone}."),
    ("Appelle le {phone} après {time}.", "Call {phone} after {time}."),
    ("Vous pouvez me joindre au {phone} ou par mail.", "You can reach me at {phone} or by email."),
    ("Le train part à {time} du quai {small}.", "The train leaves at {time} from platform {small}."),
    ("On se retrouve à {time} devant la gare ?", "Shall we meet at {time} in front of the station?"),
    ("Le magasin ferme à {time}.", "The shop closes at {time}."),
    ("La réunion est reportée au {date} à {time}.", "The meeting is postponed to {date} at {time}."),
    ("Mon anniversaire est le {date}.", "My birthday is on {date}."),
    ("Nous serons en vacances du {date} au {date2}.", "We will be on holiday from {date} to {date2}."),
    ("Il est né le {date} {year}.", "He was born on {date} {year}."),
    ("Le musée est ouvert depuis {year}.", "The museum has been open since {year}."),
    ("La guerre a duré de {year} à {year2}.", "The war lasted from {year} to {year2}."),
    ("La ville compte {large} habitants.", "The city has {large} inhabitants."),
    ("L'entreprise emploie {large} personnes dans {small} pays.",
     "The company employs {large} people in {small} countries."),
    ("Plus de {large} personnes ont manifesté.", "More than {large} people demonstrated."),
    ("Le code est {code}, ne le donnez à personne.", "The code is {code}, don't give it to anyone."),
    ("Votre vol {flight} part de la porte {small}.", "Your flight {flight} leaves from gate {small}."),
    ("Les prix ont augmenté de {percent} en {small} ans.", "Prices have risen by {percent} in {small} years."),
    ("Il fait {small} °C à l'ombre.", "It is {small}°C in the shade."),
    ("L'appartement fait {small} m² et coûte {price} par mois.",
     "The apartment is {small} m² and costs {price} a month."),
    ("J'habite au {small}, rue Victor-Hugo.", "I live at {small} Victor Hugo Street."),
    ("Ajoutez {gram} g de farine et {small} œufs.", "Add {gram} g of flour and {small} eggs."),
    ("Il pèse {gram} grammes.", "It weighs {gram} grams."),
    ("Louis {king} est mort en {year}.", "Louis {king} died in {year}."),
    ("Nous étions {small}, il en reste {small2}.", "There were {small} of us, {small2} are left."),
    ("Chambre {gram}, au {small}e étage.", "Room {gram}, floor {small}."),
    ("Rendez-vous le {date} à {time}.", "See you on {date} at {time}."),
    ("J'ai {small} ans et mon frère en a {small2}.", "I am {small} years old and my brother is {small2}."),
    ("Le colis {flight} arrivera le {date}.", "Parcel {flight} will arrive on {date}."),
)  # fmt: skip
"""Sentences around numbers, in French and English."""


def hasty(source: str, target: str, language: str, rng: random.Random) -> Pair:
    """A pair whose source is typed in haste, mostly without accents; a fifth of the pairs stay as they are."""
    if rng.random() < 0.2:
        return source, target
    if rng.random() < 0.25:
        source = _abbreviated(source, ABBREVIATIONS[language], rng)
    if language == "fr" and rng.random() < 0.2:
        source = re.sub(r"\bn(?:e |['’])(?=\w+ (?:pas|plus|jamais|rien)\b)", "", source)  # as people speak
    accents_kept = rng.choice((0, 0, 0, 0, 0.5, 1))
    source = "".join(letter if rng.random() < accents_kept else without_accents(letter) for letter in source)
    if rng.random() < (0.3 if language == "fr" else 0.5):
        source = re.sub(r"(?<=\w)['’](?=\w)", rng.choice(("", "", " ") if language == "fr" else ("",)), source)
    if rng.random() < 0.25:
        source = re.sub(r"(?<=[^\W\d])-(?=[^\W\d])", " ", source)
    if rng.random() < 0.5:
        source = re.sub(r" (?=[?!:;])", "", source)
    if rng.random() < 0.1:
        source = _with_slip(source, rng)
    if rng.random() < 0.5:
        source = source.lower()
    if rng.random() < 0.4:
        source, target = without_final_marks(source), without_final_marks(target)
    return source, target


def without_final_marks(text: str) -> str:
    """The text without the marks at its end, except the dot of a.m. and p.m."""
    return re.sub(r"(?<![ .!?…])(?<![ap]\.m)[ .!?…]+$", "", text)


def without_accents(text: str) -> str:
    """The text in unaccented letters."""
    decomposed = unicodedata.normalize("NFD", text).replace("œ", "oe").replace("Œ", "Oe").replace("æ", "ae")
    return "".join(character for character in decomposed if not unicodedata.combining(character))


def _abbreviated(text: str, abbreviations: Mapping[str, tuple[str, ...]], rng: random.Random) -> str:
    words = "|".join(sorted(map(re.escape, abbreviations), key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w'-])(?:{words})(?![\w'-])", re.IGNORECASE)
    return pattern.sub(lambda match: rng.choice(abbreviations[match[0].lower()]), text)


def _with_slip(text: str, rng: random.Random) -> str:
    """The text with one letter inside a longer word left out, doubled or exchanged with the next."""
    places = [match.start() + 1 for match in re.finditer(r"[^\W\d_]{5,}", text)]
    if not places:
        return text
    place = rng.choice(places) + rng.randrange(3)
    letter, following = text[place], text[place + 1]
    slips = (following, letter + letter + following, following + letter)
    return text[:place] + rng.choice(slips) + text[place + 2 :]


def with_numbers(count: int, rng: random.Random) -> Iterator[Pair]:
    """French and English sentences with random numbers, each written as its language does."""
    for _ in range(count):
        french, english = rng.choice(WITH_NUMBERS)
        values = {slot: _SLOTS[slot.rstrip("2")](rng) for slot in set(re.findall(r"{(\w+)}", french))}
        yield (
            french.format(**{slot: value[0] for slot, value in values.items()}),
            english.format(**{slot: value[1] for slot, value in values.items()}).replace("..", "."),  # p.m.
        )


def _price(rng: random.Random) -> Pair:
    whole = rng.choice((rng.randint(2, 99), rng.randint(100, 999), rng.randint(1_000, 99_999)))
    cents = rng.choice(("", "", f"{rng.randint(1, 99):02}", "50", "99"))
    french = _grouped(whole, " ") + (f",{cents}" if cents else "")
    english = _grouped(whole, ",") + (f".{cents}" if cents else "")
    sign, name = rng.choice((("€", "euros"), ("€", "euros"), ("$", "dollars"), ("£", "")))
    if name and rng.random() < 0.3:
        return f"{french} {name}", f"{english} {name}"
    return f"{french} {sign}", f"{sign}{english}"


def _grouped(number: int, separator: str) -> str:
    return f"{number:,}".replace(",", separator)


def _phone(rng: random.Random) -> Pair:
    pairs = [f"{rng.randrange(100):02}" for _ in range(4)]
    french = " ".join([f"0{rng.randint(1, 9)}", *pairs])
    number = rng.choice((french, french.replace(" ", ""), f"{rng.randint(200, 999)}-{rng.randrange(10_000):04}"))
    return number, number


def _time(rng: random.Random) -> Pair:
    hour, minutes = rng.randint(1, 23), rng.choice((0, 15, 30, 45, rng.randrange(60)))
    separator = rng.choice((" h ", "h", "h"))
    french = f"{hour}{separator}{minutes:02}" if minutes else f"{hour}{separator.rstrip()}"
    half = "a.m." if hour < 12 else "p.m."
    clock = (hour - 1) % 12 + 1
    return french, (f"{clock}:{minutes:02} {half}" if minutes else f"{clock} {half}")


def _date(rng: random.Random) -> Pair:
    day, weekday, month = rng.randint(2, 28), rng.randrange(7), rng.randrange(12)
    french, english = f"{day} {MONTHS['fr'][month]}", f"{day} {MONTHS['en'][month]}"
    if rng.random() < 0.5:
        return f"{DAYS['fr'][weekday]} {french}", f"{DAYS['en'][weekday]}, {english}"
    return french, english


def _large(rng: random.Random) -> Pair:
    number = rng.choice((rng.randint(1_000, 9_999), rng.randint(10, 999) * 1_000, rng.randint(1, 99) * 100_000))
    return _grouped(number, " "), _grouped(number, ",")


def _percent(rng: random.Random) -> Pair:
    number = rng.randint(1, 99)
    return f"{number} %", f"{number}%"


def _same(text: str) -> Pair:
    return text, text


_SLOTS: Mapping[str, Callable[[random.Random], Pair]] = {
    "price": _price,
    "phone": _phone,
    "time": _time,
    "date": _date,
    "large": _large,
    "percent": _percent,
    "small": lambda rng: _same(str(rng.randint(2, 99))),
    "gram": lambda rng: _same(str(rng.randint(100, 999))),
    "year": lambda rng: _same(str(rng.randint(1500, 2035))),
    "code": lambda rng: _same(str(rng.randint(1_000, 999_999))),
    "flight": lambda rng: _same(f"{rng.choice(('AF', 'BA', 'LH', 'EK', 'X', 'B'))}{rng.randint(10, 9999)}"),
    "king": lambda rng: _same(rng.choice(("XIII", "XIV", "XV", "XVI", "XVIII"))),
}
"""What a placeholder stands for, in French and English."""
