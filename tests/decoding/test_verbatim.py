"""Numbers, prices, addresses and codes in translations."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.amounts import ENGLISH, FRENCH, GERMAN, Amount, NumberFormat, amounts, number_format, with_amounts
from regard.decoding.verbatim import (
    check_verbatim,
    replace_parts,
    verbatim_parts,
    with_names_of_units,
    with_placeholders,
    without_placeholders,
)

CORRECTED = [
    ("fr", "en", "Ça coûte 1 249,99 € au lieu de 1 600 €.", "It costs $1 249.99 instead of $1 600.00.",
     "It costs €1,249.99 instead of €1,600."),
    ("fr", "en", "100 € pour 100 personnes", "$100 for 100 people", "€100 for 100 people"),
    ("fr", "en", "2 500 € et 2 500 habitants", "$2 500 and 2 500 people", "€2,500 and 2,500 people"),
    ("fr", "en", "15 €", "15 euros", "15 euros"),
    ("fr", "en", "15 €", "EUR 15", "EUR 15"),
    ("fr", "en", "15 €", "€ 15", "€ 15"),
    ("fr", "en", "3,50 €", "3.5 euros", "3.5 euros"),
    ("fr", "en", "3,50 €", "3,50 euros", "3.50 euros"),
    ("fr", "en", "1,5 million €", "1.5 million €", "1.5 million €"),
    ("fr", "en", "2 500 000 habitants", "2 500 000 inhabitants", "2,500,000 inhabitants"),
    ("fr", "en", "2 500 000 habitants", "2500000 inhabitants", "2500000 inhabitants"),
    ("fr", "en", "En 1945, 3 hommes", "In 1945, 3 men", "In 1945, 3 men"),
    ("fr", "en", "75001 Paris", "75001 Paris", "75001 Paris"),
    ("fr", "en", "20 $ ou 20 €", "€20 or $20", "€20 or $20"),
    ("en", "fr", "about 3,500 people", "environ 3,500 personnes", "environ 3 500 personnes"),
    ("en", "fr", "It costs €1,250.50.", "Ça coûte 1250,50.", "Ça coûte 1 250,50 €."),
    ("en", "fr", "20% of 1,000", "20 % de 1.000", "20 % de 1 000"),
    ("en", "fr", "$1,249.99 instead of $1,600", "1 249,99 au lieu de 1 600 $", "1 249,99 $ au lieu de 1 600 $"),
    ("en", "de", "about 3,500 people", "etwa 3,500 Menschen", "etwa 3.500 Menschen"),
    ("en", "xx", "about 3,500 people", "3,500", "3,500"),
    ("fr", "en", "Le train de 18h30 est en retard.", "The 6:30 train is late.", "The 6:30 p.m. train is late."),
    ("fr", "en", "vers 16h30, il", "about 16:30 p.m., he", "about 4:30 p.m., he"),
    ("fr", "en", "jusqu'à 13h.", "until 13 p.m.", "until 1 p.m."),
    ("fr", "en", "entre 16h et 19 heures", "between 4:00 and 7 a.m", "between 4 p.m. and 7 p.m."),
    ("fr", "en", "à 10H00 et à 18H00", "at 10H00 and 18H00", "at 10 a.m. and 6 p.m."),
    ("fr", "en", "à 20h30.", "It starts at 8:30.", "It starts at 8:30 p.m."),
    ("fr", "en", "à 8h du soir", "at 8 a.m.", "at 8 p.m."),
    ("fr", "en", "à 3 heures du matin", "at 3 p.m.", "at 3 a.m."),
    ("fr", "en", "à 06h30", "at 6:30 p.m.", "at 6:30 a.m."),
    ("en", "fr", "It leaves at 11:45 p.m.", "Il part à 11h45", "Il part à 23h45"),
    ("en", "fr", "at 9 a.m. or at 12 p.m.", "à 21h ou à 0h", "à 9h ou à midi"),
    ("en", "fr", "It opens at 6 pm.", "Il ouvre à 6 p.m.", "Il ouvre à 18h."),
    ("fr", "en", "de 9h à 19h", "from 9 p.m. to 7 p.m.", "from 9 a.m. to 7 p.m."),  # a clock of 24 hours
    ("fr", "en", "9h-12h et 14h30-19h", "9 p.m.-12 a.m. and 14:30 p.m.-7 a.m.", "9 a.m.-noon and 2:30 p.m.-7 p.m."),
    ("en", "fr", "open 9am-7pm", "ouvert 9am-7h", "ouvert 9h-19h"),
    ("fr", "en", "reporté à 11h30 au lieu de 10h", "postponed to 11:30 p.m. from 10 a.m.",
     "postponed to 11:30 from 10 a.m."),
    ("fr", "en", "On se voit à 9h ce soir ?", "Shall we meet at 9 a.m. tonight?", "Shall we meet at 9:00 tonight?"),
    ("fr", "en", "à 00h30", "at 00:30 a.m.", "at 12:30 a.m."),
    ("fr", "en", "à 16h40", "at 4:40 p.m", "at 4:40 p.m."),
    ("fr", "en", "en 24 h, pas plus", "in 24 a.m., not more", "in 24 hours, not more"),
    ("fr", "en", "1.250.000 habitants et 1.250,50 €", "1,250,000 people and 1,250.50 €",
     "1,250,000 people and 1,250.50 €"),
    ("fr", "en", "Il me doit 1.500 euros.", "He owes me 1.500 euros.", "He owes me 1,500 euros."),
    ("fr", "en", "dans 500 m", "in 500 M.", "in 500 m."),
    ("fr", "en", "Il pèse 12 mg ou 12 Kg.", "It weighs 12 Mg or 12 KG.", "It weighs 12 mg or 12 kg."),
    ("fr", "en", "3,5 Mo, 16 Go, 450 ko et 2 To", "3.5 Mo, 16GO, 450 ko and 2 To", "3.5 MB, 16GB, 450 KB and 2 TB"),
    ("en", "fr", "RAM: 16 GB; 3.5MB", "RAM : 16 GB ; 3,5 MB", "RAM : 16 Go ; 3,5 Mo"),
    ("fr", "en", "1 013 hPa et 85 dB", "1 013 HPa and 85 DB", "1,013 hPa and 85 dB"),
    ("fr", "en", "1\u202f200\u202fm²", "1 200 M²", "1,200 m²"),
    ("fr", "en", "Il fait -15° ici.", "It is 15° here.", "It is -15° here."),
    ("fr", "en", "Payez 30 € en $.", "Pay €30 in $10.", "Pay €30 in $."),
    ("fr", "en", "Paiement de 30 € en $", "Payment of $30 in $30", "Payment of €30 in $"),
    ("en", "fr", "a budget of £3 billion", "un budget de 3 milliards de dollars", "un budget de 3 milliards de livres"),
    ("en", "fr", "The eurozone lost $3.4 billion or $1.", "La zone euro a perdu 3,4 milliards d’euros ou 1 euro.",
     "La zone euro a perdu 3,4 milliards de dollars ou 1 dollar."),
    ("en", "fr", "€5 million", "5 millions de dollars", "5 millions d'euros"),
    ("fr", "en", "2 milliards £ ou 12 £", "2 billion dollars or 12 Euros", "2 billion pounds or 12 pounds"),
    ("en", "fr", "$1.2 million or $3 billion", "1,2 $ million ou 3 $ milliards", "1,2 million $ ou 3 milliards $"),
    ("fr", "en", "30 € ou 5 millions €", "$30 or £5 million", "€30 or €5 million"),
    ("en", "fr", "$12/kg or $850 / month", "12/kg $ ou 850 $ / mois", "12 $/kg ou 850 $ / mois"),
]  # fmt: skip
UNCHANGED = [
    ("fr", "en", "12,5 % de 125 personnes", "12.5% of 125 people"),
    ("fr", "en", "3,65 % sur 365 jours", "3.65% over 365 days"),
    ("fr", "en", "1,50 € au lieu de 150 €", "€1.50 instead of €150"),
    ("fr", "en", "1,5 kg pour 15 €", "1.5 kg for 15 euros"),
    ("fr", "en", "10,00 € remboursés sur 1 000 €", "€10.00 back on €1,000"),
    ("fr", "en", "15 € 20 €", "€15 €20"),
    ("fr", "en", "Ça coûte 12€50.", "It costs €12.50."),
    ("fr", "en", "Le 0 800 123 456 est gratuit.", "0 800 123 456 is free."),
    ("fr", "en", "SIREN 552 100 554", "SIREN 552 100 554"),
    ("fr", "en", "10,000 habitants", "10,000 inhabitants"),
    ("en", "fr", "12, 500 feet", "12 500 pieds"),
    ("fr", "en", "plus de 16, 6 % et 1, 5 million", "more than 16.6% and 1.5 million"),
    ("fr", "en", "perdre £800, 000", "lose £800,000"),
    ("fr", "en", "1 million $ (£480,000)", "$1 million (£480,000)"),
    ("fr", "en", "1 200 $", "1,200 bucks"),
    ("fr", "en", "entre 10 et 20 €", "between €10 and €20"),
    ("fr", "en", "15 €/m², 1,85 €/l, 12 €/h", "€15 per m², €1.85/l, €12 an hour"),
    ("en", "fr", "€15/m² for 80% of 5/kg", "15 € le mètre carré pour 80 % de 5/kg"),
    ("fr", "en", "30 € en monnaie américaine", "€30 in US$"),
    ("fr", "en", "30 € en $ ou en £", "€30 in $ or pounds"),
    ("fr", "en", "500 m, 20 cl, 30 s, 5 min, 2 kg", "500 meters, 20 centilitres, 30 seconds, five minutes, two kilos"),
    ("fr", "en", "12 m², 3 m³, 20 km²", "12 square meters, 3 cubic metres, 20 km2"),
    ("fr", "en", "50 km/h et 80 %", "50 km per hour and 80 per cent"),
    ("en", "fr", "50 km/h, 80%, 1.5 L", "50 kilomètres à l'heure, 80 pour cent, 1,5 L"),
    ("fr", "en", "de 5 à 12 °C, 2 m x 3 m, 10 et 15 km", "from 5 to 12°C, 2 x 3 m, 10 and 15 km"),
    ("en", "fr", "a 5-km run of 10 km", "une course de 5 km sur 10 km"),
    ("fr", "en", "30 min, 50 %", "half an hour, half"),
    (
        "en",
        "fr",
        "5m people, 3 To go, the 1960s, an iPhone 5s",
        "5 millions de personnes, 3 à faire, les années 1960, un iPhone 5s",
    ),
    ("fr", "en", "Les 3 m'ont vu, le 5 s'en va.", "The 3 saw me, the 5 leaves."),
    ("fr", "en", "3° Les impressions", "3. The impressions"),
    ("fr", "en", "à 40° 33' N", "at 40 33 N"),
    ("fr", "en", "moins de -5 °C", "less than minus 5°C"),
    ("de", "en", "500 m und 20 l", "500 I and 20 of"),  # names of units are known in English and French only
    ("fr", "en", "48 h ou 72h", "48 hours or 72h"),
    ("fr", "en", "Ouvert 24h/24 et 7j/7", "Open around the clock"),
    ("en", "fr", "open 24/7", "ouvert 24 heures sur 24"),
    ("fr", "en", "½ litre, ¼ de tour, 1½ tasse", "half a litre, a quarter of a turn, 1½ cups"),
    ("fr", "en", "entre -5 € et 5 €", "between -€5 and €5"),
    ("fr", "en", "100 personnes", "a hundred people"),
    ("fr", "en", "2 000 000 de personnes", "2 million people"),
    ("fr", "en", "3 €", "three euros"),
    ("fr", "en", "0,50 €", "50 cents"),
    ("en", "fr", "$1.5 million", "un million et demi de dollars"),
    ("en", "fr", "¥5 million", "5 millions de dollars"),  # no name of this currency is known
    ("fr", "en", "les années 1980", "the eighties"),
    ("fr", "en", "20 € soit 25 dollars", "€20, that is $25"),
    ("fr", "en", "192.168.0.1 le 15/03/2024 à 18h30", "192.168.0.1 on 15/03/2024 at 6:30 p.m."),
    ("fr", "en", "de 1914-1918, 1/2, 3.11.2", "from 1914-1918, 1/2, 3.11.2"),
    ("en", "fr", "I use Python 3.11.", "J'utilise Python 3.11."),
    ("en", "fr", "Ubuntu 22.04 and iOS 17.4", "Ubuntu 22.04 et iOS 17.4"),
    ("fr", "en", "la version 3.500", "version 3.500"),
    ("fr", "en", "Le magasin ferme à 8h du soir", "The shop closes at 8 p.m."),
    ("fr", "en", "ce soir à 9h", "tonight at 9 p.m."),
    ("en", "fr", "$1.5M", "1,5 million de dollars"),
    ("fr", "en", "25 M€ ou 45-50 k€", "€25M or €45-50k"),
    ("en", "fr", "at 4PM or 7:30PM on FM 101.5", "à 16 heures ou à 19h30 sur FM 101.5"),
    ("en", "fr", "a 30-Year-old doctor, Mid-2024", "un médecin de 30 ans, mi-2024"),
    ("fr", "en", "Le 1ER mars à 18H30", "On March 1st at 6:30 p.m."),
    ("fr", "en", "avant 3h30", "before 3:30 p.m."),  # perhaps in the afternoon
    ("fr", "en", "Il reste 1h30 de vol.", "There are an hour and a half left."),
    ("fr", "en", "un vol de 2h30", "a flight of two and a half hours"),
    ("fr", "en", "pour 24h", "for 24 hours"),
    ("fr", "en", "à 20h", "at 8 o'clock in the evening"),
    ("fr", "en", "à 12h", "at noon"),
    ("fr", "en", "à 18h30", "at half past six"),
    ("fr", "en", "à 20h30", "at 20:30"),
    ("en", "fr", "at 9 a.m.", "à 9 heures du matin"),
    ("en", "fr", "at 11:45 p.m.", "à minuit moins le quart"),
    ("en", "fr", "at 5 o'clock", "à 17 heures"),
    ("fr", "en", "Il a dormi 8h, un vol de 12h", "He slept 8h, a 12h flight"),
    ("en", "fr", "open from 02:15 to 03:30 PM", "ouvert de 14h15 à 15h30"),
    ("en", "fr", "$60 million", "60 millions"),  # 60 $ millions is no French
    ("fr", "en", "3 jours et 12 heures", "3 days and 12 hours"),
    ("fr", "en", "et 12 heures plus tard", "and twelve hours later"),
    ("fr", "en", "de 8 h à 9 h par jour", "8 to 9 hours a day"),
    ("fr", "en", "à 19h", "at seven"),
    ("fr", "en", "à 19 h, 20 h et 21 h", "at 7, 8 and 9 p.m."),
    ("fr", "en", "de 14 à 18 heures", "from 2 to 6 p.m."),
    ("fr", "en", "entre 18 et 20h", "between 6 and 8 p.m."),
    ("en", "fr", "between 6 and 8 p.m.", "entre 6 et 8 heures"),  # 6 et 20h is wrong
    ("en", "fr", "between 6 and 8 p.m.", "entre 18h et 20h"),
    ("en", "fr", "at 7, 8 and 9 p.m.", "à 19, 20 et 21 h"),
    ("en", "fr", "at 7:30 a.m.", "à sept heures trente"),
    ("de", "en", "um 18 Uhr", "at 6 p.m."),
    ("de", "en", "zwischen 18 und 20 Uhr", "between 6 and 8 p.m."),
    ("fr", "en", "21 chats, 5 chiens et 80 oies", "twenty-one cats, five dogs and eighty geese"),
    ("fr", "en", "le 4 août et les 15 jours suivants", "the fourth of August and the next fortnight"),
    ("fr", "en", "2 frères et 1 sœur", "brothers and a sister"),
    ("en", "fr", "99 luftballons, 71 years, 16 cats", "quatre-vingt-dix-neuf, soixante et onze, seize"),
    ("en", "de", "35 cats", "fünfunddreißig Katzen"),
]
LOST = [
    ("en", "fr", "It costs $1,299.99, but", "Ça coûte 1 299,99,99, mais", {"$1,299.99": "1 299,99 $"}),
    ("fr", "en", "Un contrat de 1,5 Md€, 45-50 k€", "A contract of €1", {"1,5 Md€": "€1.5bn", "45-50 k€": "€45-50k"}),
    ("en", "fr", "It costs $1.5M or £2bn.", "Ça coûte 1,5 M.", {"$1.5M": "1,5 M$", "£2bn": "2 Md£"}),
    ("fr", "en", "entre 8h et 13h", "between 8: and 1 p.m.", {"8h": "8 a.m."}),
    ("fr", "en", "Dimanche : 9h-13h", "Sunday: 9:13 a.m.", {"9h": "9 a.m.", "13h": "1 p.m."}),
    ("fr", "en", "Horaires : 10h45-11h15", "Hours: 10:45-1:15 a.m.", {"11h15": "11:15"}),
    (
        "en",
        "fr",
        "Python 3.11.4 on 192.168.1.1",
        "Python 3.11,4 sur 192,168.1",
        {"3.11.4": "3.11.4", "192.168.1.1": "192.168.1.1"},
    ),
    (
        "en",
        "fr",
        "Run `pip install x` in /etc/app/.",
        "Lancez pip.",
        {"`pip install x`": "`pip install x`", "/etc/app/": "/etc/app/"},
    ),
    ("en", "fr", "Call me at 555-0137.", "Appelle-moi à 55-0137.", {"555-0137": "555-0137"}),
    ("fr", "en", "Appelez le 06 12 34 56 78.", "Call 06 12, 34 56 78.", {"06 12 34 56 78": "06 12 34 56 78"}),
    ("en", "fr", "Convert €30 to $.", "Convertir 30 € à €.", {"$": "$"}),
    ("fr", "en", "15 €/m² ou 1,85 €/l", "15 or €1.85", {"15 €/m²": "€15/m²", "1,85 €/l": "€1.85/l"}),
    ("en", "fr", "$5/kg or €6/l", "5 $/kg ou €", {"$5/kg": "5 $/kg", "€6/l": "6 €/l"}),
    ("fr", "en", "3 $/kg, 6 €/l, 20 €", "€3/kg, 6/l, €20", {"3 $/kg": "$3/kg", "6 €/l": "€6/l"}),
    ("fr", "en", "3 $/kg et 6 €/l", "six euros a litre and three dollars a kilo", {}),
    ("fr", "en", "Il dort 8 h par nuit.", "He sleeps 8:00 a night.", {"8 h": "8 h"}),
    ("en", "fr", 'The 26" wheels of room "12"', 'Les roues 26 de la chambre "12"', {'26"': '26"'}),
    ("en", "fr", "He is 5' 10\" tall.", "Il fait 5 pieds dix.", {"5' 10\"": "5' 10\""}),
    ("en", "fr", 'a 13.3" display', "un écran 13,3", {'13.3"': '13,3"'}),
    ("en", "fr", 'a 13.3" display', 'un écran 13,3"', {}),
    ("fr", "en", 'et les années 90", dit-il.', "and the nineties, he says.", {}),
    ("en", "fr", "She won $1.2 million.", "Elle a gagné 12 millions de dollars.", {"$1.2": "1,2 $"}),
    ("en", "fr", "every 10 min", "toutes les dix heures", {"10 min": "10 min"}),
    ("en", "fr", "2m long, 5m people", "2 de long, 5", {"2m": "2 m"}),
    ("fr", "en", "Tournez dans 500 m.", "Turn in 500 I.", {"500 m": "500 m"}),
    ("fr", "en", "20 cl et 250 g", "20 milk clothes, 250 g", {"20 cl": "20 cl"}),
    ("fr", "en", "50g, 10cl", "50g", {"10cl": "10 cl"}),
    ("fr", "en", "1\u202f200\u00a0m de long", "1,200 me", {"1\u202f200\u00a0m": "1,200 m"}),
    ("fr", "en", "1 l d'eau et 2 To", "a water and 2 data", {"1 l": "1 l", "2 To": "2 TB"}),
    ("en", "fr", "1.5 l of water and 5 m", "1,5 l'eau et 5 m’a", {"1.5 l": "1,5 l", "5 m": "5 m"}),
    ("fr", "en", "20 mm de pluie", "20 miles of rain", {"20 mm": "20 mm"}),
    ("fr", "en", "580 km² et 12 m", "580 km and 12 m²", {"580 km²": "580 km²", "12 m": "12 m"}),
    ("fr", "en", "80 km/h", "80 km", {"80 km/h": "80 km/h"}),
    ("fr", "en", "-3 °C", "C", {"-3 °C": "-3°C"}),
    ("en", "fr", "-3°C and 80%", "C", {"-3°C": "-3 °C", "80%": "80 %"}),
    ("en", "fr", "20 t of 5 mm, 9 W", "20 heures, 5 mois, 9 heures", {"20 t": "20 t", "5 mm": "5 mm", "9 W": "9 W"}),
    ("fr", "en", "Il a dormi 8 h.", "He slept 8 a.m.", {"8 h": "8 h"}),
    ("fr", "en", "en 2 h 10 min", "in 2:10 p.m.", {"2 h": "2 h"}),
    ("fr", "en", "Ouvert 24h/24 et 7j/7.", "Open 24:/24.", {"24h/24 et 7j/7": "24/7"}),
    ("fr", "en", "24 h/24, le bus 7j/7", "24, bus", {"24 h/24": "24 hours a day", "7j/7": "7 days a week"}),
    ("en", "fr", "It is open 24/7.", "C'est ouvert 24/7.", {"24/7": "24h/24 et 7j/7"}),
    ("fr", "en", "½ citron, 1½ tasse", "lemon", {"½": "½", "1½": "1½"}),
    ("fr", "en", "E = mc², CO₂ et x² au m²; chat¹", "E, CO and the", {"mc²": "mc²", "CO₂": "CO₂", "x²": "x²"}),
    ("fr", "en", "Le vol AF123 de 1945", "Flight AF12 of 945", {"AF123": "AF123", "1945": "1945"}),
    ("fr", "en", "100 chats et 100 000 chiens", "a cat and 100,000 dogs", {"100": "100"}),
    ("fr", "en", "12 et 34", "twelve and 34", {}),
    ("fr", "en", "Il a raconté 11 fois son voyage.", "He told his journey.", {"11": "11"}),
    ("fr", "en", "le jeudi 17 janvier", "on Thursday, January", {"17": "17"}),
    ("fr", "en", "Réunion le 17 mai 2024 à 18h30.", "Meeting at 6:30 p.m. on 17 May.", {"2024": "2024"}),
    ("fr", "en", "En 2010, 500 filles de 12, 13 ou 14 ans", "girls", {n: n for n in ("2010", "500", "12", "13", "14")}),
    ("fr", "en", "de 9h à 17h, le 17 mai", "from 9 a.m., on 17 May", {"17h": "5 p.m."}),
    ("fr", "en", "de 17h30 à 18h30", "from 5:30 p.m.", {"18h30": "6:30 p.m."}),
    ("en", "fr", "from 9 a.m. to 2:15 p.m.", "de 9h15", {"9 a.m.": "9h", "2:15 p.m.": "14h15"}),
    ("en", "fr", "Come at 9:15 a.m. or 6 p.m.", "Viens.", {"9:15 a.m.": "9h15"}),
    (
        "en",
        "fr",
        "Come on 12/03/2025 or 2025-03-14.",
        "Viens le 12.",
        {"12/03/2025": "12/03/2025", "2025-03-14": "2025-03-14"},
    ),
    ("fr", "en", "10 500 personnes et 10 500 chats", "10,500 people and cats", {"10 500": "10,500"}),
]


@pytest.mark.parametrize(("source_language", "target_language", "source", "translation", "corrected"), CORRECTED)
def test_amounts_are_corrected(
    source_language: str, target_language: str, source: str, translation: str, corrected: str
) -> None:
    checked = check_verbatim(translation, source, source_language, target_language)
    assert checked.text == corrected
    assert checked.missing == {}


@pytest.mark.parametrize(("source_language", "target_language", "source", "translation"), UNCHANGED)
def test_correct_translations_are_not_changed(
    source_language: str, target_language: str, source: str, translation: str
) -> None:
    checked = check_verbatim(translation, source, source_language, target_language)
    assert (checked.text, checked.missing) == (translation, {})


@pytest.mark.parametrize(("source_language", "target_language", "source", "translation", "missing"), LOST)
def test_what_is_lost_is_found(
    source_language: str, target_language: str, source: str, translation: str, missing: dict[str, str]
) -> None:
    assert check_verbatim(translation, source, source_language, target_language).missing == missing


def test_names_replace_the_symbols_of_missing_units() -> None:
    missing = {"1 l": "", "-1,5 m": "", "2 h": "", "3 Mo": "", "riz": ""}
    text = with_names_of_units("1 l, -1,5 m, en 2 h 30, 3 Mo, 1 kg de riz", missing, "fr")
    assert text == ("1 litre, -1,5 mètres, en 2 heures 30, 3 Mo, 1 kg de riz", {})
    assert with_names_of_units("1 m of rice", {"1 m": ""}, "en") == ("1 meter of rice", {})
    for language in (None, "de"):
        assert with_names_of_units("20 cl", {"20 cl": "20 cl"}, language) == ("20 cl", {})


def test_units_that_models_do_not_know_have_a_stand_in() -> None:
    """Models made "20 milk centilitres" of 20 centilitres de lait."""
    missing = {"2,5 dl": "2.5 dl", "20 cl": "20 cl"}
    text, stand_ins = with_names_of_units("2,5 dl de lait et 20 cl d'eau", missing, "fr")
    assert text == "2,5 ml de lait et 20 ml d'eau"
    assert replace_parts("2.5 ml of milk and 20 ml of water", stand_ins) == "2.5 dl of milk and 20 cl of water"


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("20 cl de lait et 20 ml d'eau", ("20 cl de lait et 20 ml d'eau", {})),
        ("20 cl de lait et 20 dl d'eau", ("20 ml de lait et 20 dl d'eau", {"20 ml": "20 cl"})),
    ],
)
def test_a_stand_in_stands_for_one_amount(source: str, named: tuple[str, dict[str, str]]) -> None:
    assert with_names_of_units(source, {"20 cl": "20 cl", "20 dl": "20 dl"}, "fr") == named


def test_placeholders_replace_only_what_is_missing() -> None:
    source = "Il a 100 chats, 100 000 chiens et X1 sur www.a.fr/100, 100."
    text, placeholders = with_placeholders(source, {"100": "100", "www.a.fr/100": "www.a.fr/100"})
    assert text == "Il a X2 chats, 100 000 chiens et X1 sur X3, X2."
    assert without_placeholders(text, placeholders) == source
    assert without_placeholders("EURX2 or X20", placeholders) == "EUR100 or X20"
    assert without_placeholders("from X1 to X2.", {"X1": "8:00", "X2": "6 p.m."}) == "from 8:00 to 6 p.m."
    assert with_placeholders("a", {str(number): "" for number in range(10)}) == ("a", {})


@pytest.mark.parametrize(
    "text",
    [
        "le 20e siècle",
        "14h30",
        "3-4 fois",
        "2 500 000 euros et 3 500 dollars",
        "12 et 13, 2 10",
        "km/h, et/ou",
        "<b>/</b>",
        "1.500.000",
        "3.5",
        "/mois",
        "`",
        "fini.de plus",
        "un@ chat",
        "C# et #1",
        "R&#D",
    ],
)
def test_ordinary_text_is_translated(text: str) -> None:
    assert verbatim_parts(text) == []


def test_rows_of_numbers_are_kept() -> None:
    """Models turned "4 8 15 16" into 4 8,16."""
    text = "Le code est 4 8 15 16 23 42, le tirage : 3 12 25. Il y a 2 500 000 habitants."
    assert verbatim_parts(text) == ["4 8 15 16 23 42", "3 12 25"]


def test_paths_and_code_are_kept() -> None:
    text = r"Voir ~/a/b.txt, /usr/local/bin. C:\Users\moi, `x = 1` et v2.0.1."
    assert verbatim_parts(text) == ["~/a/b.txt", "/usr/local/bin", r"C:\Users\moi", "`x = 1`", "v2.0.1"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("型番AB-123です", ["AB-123"]),
        ("请在A4纸上打印。", ["A4"]),
        ("모델 AB-123은 새 것입니다", ["AB-123"]),
        ("รุ่นAB-123ครับ", ["AB-123"]),
        ("詳しくはwww.example.com/a.htmlを見て", ["www.example.com/a.html"]),
        ("https://example.com/b。次は", ["https://example.com/b"]),
        ("（https://ja.wikipedia.org/wiki/日本）", ["https://ja.wikipedia.org/wiki/日本"]),
        ("a.b@c.frまで、plan.pdfと@moiさん", ["a.b@c.fr", "plan.pdf", "@moi"]),
        ("#東京と#regard3は", ["#東京と", "#regard3"]),
        (
            "電話06 12 34 56 78へ2026-05-01に、v2.0.1版、CO₂を`あa`",
            ["06 12 34 56 78", "2026-05-01", "v2.0.1", "CO₂", "`あa`"],
        ),
        ("報告書.pdf", ["報告書.pdf"]),
        ("昨日の報告書.pdfを", []),
        ("2026年5月1日、T恤", []),
        ("modèleAB-123é", []),
    ],
)
def test_what_is_next_to_letters_of_scripts_without_spaces_is_kept(text: str, parts: list[str]) -> None:
    assert verbatim_parts(text) == parts


def test_placeholders_are_put_next_to_letters_of_scripts_without_spaces() -> None:
    source = "型番AB-123です。AB-1234とxAB-123は"
    text, placeholders = with_placeholders(source, {"AB-123": "AB-123"})
    assert text == "型番X1です。AB-1234とxAB-123は"
    assert without_placeholders(text, placeholders) == source
    assert check_verbatim("型番はAB-123です", "The model is AB-123.", "en", "ja").missing == {}


def test_languages_are_known_by_their_codes() -> None:
    codes = ("en", "en-GB", "eng_Latn", "fr", "fra_Latn", "DE", "xx", "", None)
    assert [*map(number_format, codes)] == [ENGLISH, ENGLISH, ENGLISH, FRENCH, FRENCH, GERMAN, None, None, None]


FORMATS = st.sampled_from([ENGLISH, FRENCH, GERMAN])


@given(
    whole=st.integers(1_000, 10**15),
    decimals=st.sampled_from(["", "5", "50", "07"]),
    sign=st.sampled_from(["", "€", "$"]),
    source_format=FORMATS,
    target_format=FORMATS,
)
def test_what_is_written_is_read(
    whole: int, decimals: str, sign: str, source_format: NumberFormat, target_format: NumberFormat
) -> None:
    for grouped in (True, False):
        number = f"{whole:,}".replace(",", source_format.group) if grouped else str(whole)
        number += source_format.decimal + decimals if decimals else ""
        price = sign + number if source_format.sign_first else f"{number} {sign}".strip()
        [amount] = amounts(f"Le prix : {price}, non ?", source_format)
        assert (amount.text, amount.whole, amount.decimals, amount.sign) == (price, str(whole), decimals, sign)
        assert source_format.write(amount) == price
        [again] = amounts(target_format.write(amount), target_format)
        assert (again.whole, again.decimals, again.sign) == (str(whole), decimals, sign)


AMOUNTS = st.tuples(
    st.sampled_from(["15", "1.5", "150", "1.50", "1500", "3.65", "365", "12.5", "125", "1249.99"]),
    st.sampled_from(["", "€", "$"]),
)


@given(amounts=st.lists(AMOUNTS, min_size=1, max_size=4), source_format=FORMATS, target_format=FORMATS)
def test_a_correct_translation_is_not_changed(
    amounts: list[tuple[str, str]], source_format: NumberFormat, target_format: NumberFormat
) -> None:
    def written(number_format: NumberFormat) -> str:
        parts = [number.partition(".") for number, _ in amounts]
        return " et ".join(
            number_format.write(Amount("", whole, decimals, sign, len(whole) > 3)) + " ans"
            for (whole, _, decimals), (_, sign) in zip(parts, amounts, strict=True)
        )

    translation = written(target_format)
    assert with_amounts(translation, written(source_format), source_format, target_format) == (translation, [])


PARTS = st.lists(
    st.sampled_from(["12", "1,5", "1.50", "15 €", "$15", "1 249,99 €", "€1,249.99", "100", "10 500", "et"])
)


@given(source=PARTS, translation=PARTS)
def test_a_correction_is_final(source: list[str], translation: list[str]) -> None:
    checked = check_verbatim(" a ".join(translation), " a ".join(source), "fr", "en")
    assert check_verbatim(checked.text, " a ".join(source), "fr", "en") == checked


@given(source=st.text("0123456789 ,.€$a-", max_size=30), translation=st.text("0123456789 ,.€$a-", max_size=30))
def test_any_text_is_checked(source: str, translation: str) -> None:
    checked = check_verbatim(translation, source, "fr", "en")
    assert re.sub(r"[^a]", "", checked.text) == re.sub(r"[^a]", "", translation)
