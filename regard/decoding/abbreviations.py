"""Abbreviations that are written with a full stop, by language, for the sentence splitter.

Entries are lower-case and without their last full stop. An entry of two words ("p. ex") must match both; one that
begins with a bracket matches only directly after it. Single letters, and letters with full stops between them (U.S.,
J. R. R.), need no entry: they end a sentence where the next word begins one. An entry under `inside` (e.g.) or `either`
(p.m.) overrides that. Words that also exist without the full stop are listed only where a sentence would rarely end
with them in any of these languages.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Abbreviations:
    """The abbreviations of a language, by what a full stop after them can mean."""

    inside: frozenset[str] = frozenset()
    """Abbreviations that no sentence ends with: titles, "cf.", "e.g."."""
    either: frozenset[str] = frozenset()
    """Abbreviations that a sentence may end with ("etc."): what follows decides."""
    before_number: frozenset[str] = frozenset()
    """Words that are abbreviations only before a number ("no. 5", "fig. 3")."""

    def __or__(self, other: "Abbreviations") -> "Abbreviations":
        return Abbreviations(
            self.inside | other.inside, self.either | other.either, self.before_number | other.before_number
        )


def _entries(*lines: str, pairs: tuple[str, ...] = ()) -> frozenset[str]:
    return frozenset(entry.casefold() for entry in (*" ".join(lines).split(), *pairs))


ABBREVIATIONS: dict[str, Abbreviations] = {
    "fr": Abbreviations(
        _entries(
            "m mm mme mmes mlle mlles mgr dr drs pr prof st ste cf éd ed éds eds env av ap apr bd boul gén gen gal",
            "capt lt sgt adj mtre vve réf sté ets fbg chev rés bât appt imm p.ex c.-à-d (ex (env",
            pairs=("p. ex", "par ex"),
        ),
        _entries(
            "etc suiv cie hab univ pers dép dépt arr dim lun mar ven tél temp ext max min",
            "janv févr fevr fév fev avr oct nov déc dec s.a",
            pairs=("et al", "av. j.-c", "apr. j.-c", "ap. j.-c", "avant j.-c", "après j.-c", "av. j.c", "apr. j.c"),
        ),
        _entries(
            "no nos nº n° art vol chap fig pp janv févr fevr fév fev avr juil sept oct nov déc dec mars ex al liv t",
            "tab tél tel dim lun mar ven max min",
        ),
    ),
    "en": Abbreviations(
        _entries(
            "mr mrs ms messrs dr drs prof st rev hon gen capt cpt lt sgt maj gov sen rep pres supt dept vs viz approx",
            "cf ie eg i.e e.g eds ed mt ft attn bldg (ex",
        ),
        _entries(
            "etc jr sr esq inc ltd co corp bros llc ave blvd rd apt univ temp max min mon tue tues thu thurs fri",
            "ph.d ed.d m.sc b.sc oct nov dec",
            "a.m p.m b.c b.c.e c.e",
            pairs=("et al", "washington d.c", "washington, d.c"),
        ),
        _entries(
            "no nos art vol chap ch fig figs pp jan feb mar apr jun jul aug sep sept oct nov dec sec eq tab ex tel ext",
            "apt est max min",
        ),
    ),
    "de": Abbreviations(
        _entries(
            "dr prof hr fr frl dipl ing dipl.-ing bzw vgl sog sogen zb evtl ggf inkl exkl zzgl bspw insb insbes lt nr",
            "str abb geb gest verh hrsg allg ehem mio mrd st z.b d.h u.a d.i i.d.r o.g s.o s.u v.a",
        ),
        _entries("usw usf etc bd jh jhd jhdt ff gmbh co e.v"),
        _entries("art abs bd kap s nr jan feb apr aug sept okt nov dez ziff ca tel max min"),
    ),
    "es": Abbreviations(
        _entries(
            "sr sra sres sras srta dr dra dres prof profa lic ing arq gral cnel tte ud uds vd vds dña avda pág págs",
            "núm aprox ej dpto depto mons ee aa",
            pairs=("p. ej", "por ej"),
        ),
        _entries("etc cía ltda hnos s.l s.a ss a.c d.c", pairs=("ee. uu", "aa. vv", "a. c", "d. c")),
        _entries("art vol cap fig no nº tel"),
    ),
    "it": Abbreviations(
        _entries(
            "sig sigg sig.ra sig.na dott dott.ssa prof prof.ssa ing avv geom mons gen cfr pag pagg ecc.mo egr",
            pairs=("p. es", "per es", "ad es"),
        ),
        _entries("ecc etc segg s.p.a s.r.l"),
        _entries("art vol cap fig nn num lett tel ca"),
    ),
    "pt": Abbreviations(
        _entries(
            "sr sra srs sras srta dr dra drs prof profa eng exmo exma ilmo av pág págs núm aprox gov gen cel",
            pairs=("p. ex", "por ex"),
        ),
        _entries("etc cia ltda s.a"),
        _entries("art vol cap fig nº no tel"),
    ),
    "nl": Abbreviations(
        _entries("dhr mevr mej dr drs prof ing mr bijv bv zgn resp evt incl excl blz nr st"),
        _entries("enz etc e.d"),
        _entries("art afb hfst jan feb mrt apr aug sept okt nov dec ca max min tel"),
    ),
    "sv": Abbreviations(
        _entries("bl.a t.ex dr prof st resp inkl exkl kl nr", pairs=("t. ex", "bl. a")),
        _entries("etc osv m.m m.fl"),
        _entries("art kap fig sid jan feb aug sept okt nov dec ca tel"),
    ),
    "da": Abbreviations(
        _entries("dr prof hr fr inkl ekskl bl.a f.eks kl nr st"), _entries("osv etc mv m.m m.v"), _entries("ca tel")
    ),
    "no": Abbreviations(
        _entries("dr prof hr fr inkl ekskl bl.a f.eks kl nr st"), _entries("osv etc mv m.m m.v"), _entries("ca tel")
    ),
    "pl": Abbreviations(
        _entries("dr prof mgr inż hab np tj tzn tzw ul św ks płk gen nr godz wg ww zob", pairs=("m. in",)),
        _entries("itd itp etc zł tys mln mld"),
        _entries("art rozdz rys str poz pkt tel"),
    ),
    "cs": Abbreviations(
        _entries("dr prof ing mgr bc mudr judr phdr rndr např tj tzv tzn ul nám sv srov resp popř příp"),
        _entries("atd apod aj tis", pairs=("s. r. o",)),
        _entries("č čl obr kap str odst tel"),
    ),
    "ro": Abbreviations(_entries("dl d-na dvs dr prof ing str nr cca sf"), _entries("etc ș.a"), _entries("art tel")),
    "tr": Abbreviations(
        _entries("dr prof doç yrd av sn sok cad mah bkz örn alb yzb"), _entries("vb vs vd"), _entries("no")
    ),
    "ru": Abbreviations(
        _entries("проф акад доц гр ул просп пер пл обл р-н см напр тел тов г-н г-жа св стр"),
        _entries("руб коп тыс млн млрд чел гг вв пр др"),
        _entries("гл ст рис табл т с п кв"),
    ),
    "uk": Abbreviations(
        _entries("проф акад доц вул просп пров пл обл див напр тел св стор", pairs=("т. зв",)),
        _entries("грн коп тис млн млрд рр ст ін"),
        _entries("гл рис табл"),
    ),
    "el": Abbreviations(_entries("κα κος δρ καθ βλ πρβλ αρ τηλ οδ δηλ"), _entries("κλπ κ.λπ κτλ κ.ά")),
    "he": Abbreviations(_entries("ד״ר פרופ עמ גב מס רח")),
    "hi": Abbreviations(_entries("डॉ डा प्रो श्री श्रीमती कु सं पं मो रु")),
    "ka": Abbreviations(_entries("პროფ აკად დოც ქ ე.ი იხ მაგ")),
    "th": Abbreviations(_entries("ดร นพ พญ ทพ ผศ รศ ศ พล.อ พ.ต.อ")),
}
"""Abbreviations of each language, by its ISO 639-1 code."""

ORDINAL_NOUNS = _entries(
    "januar februar märz april mai juni juli august september oktober november dezember jänner jahrhundert weltkrieg",
    "klasse stock etage auflage kapitel jahrtausend jh jhd",  # German
    "ledna února března dubna května června července srpna září října listopadu prosince století",  # Czech
    "tammikuuta helmikuuta maaliskuuta huhtikuuta toukokuuta kesäkuuta heinäkuuta elokuuta syyskuuta lokakuuta",
    "marraskuuta joulukuuta",  # Finnish
    "marts maj juni juli oktober desember januari februari",  # Scandinavian
)
"""Nouns, mostly months, that follow an ordinal number in languages that write ordinals with a full stop ("3. Mai")."""

UNITS_OF_MEASURE = _entries("mm hab ft gal lt in oz")
"""Units that are abbreviations of something else unless they follow a number: "5 mm.", but "MM. Dupont et Roy"."""

AFTER_TIME = _entries(
    "monday tuesday wednesday thursday friday saturday sunday eastern central mountain pacific",
    "et est edt ct cst cdt mt mst mdt pt pst pdt gmt utc bst cet cest",
)
"""Words that continue a time of day: "5 p.m. Monday", "at 9 a.m. Eastern Time"."""

SENTENCE_STARTERS = _entries(
    # French
    "il elle on nous vous ils elles je tu ce cet cette ces ça cela ceci celui celle ceux un une mon ton son ma ta",
    "sa mes tes ses notre votre nos vos leur leurs mais et ou donc or car ni si quand lorsque comme puis ensuite",
    "alors pourquoi comment où qui que quoi dans en à au aux avec sans sous sur pour par chez après avant depuis",
    "pendant entre tout tous toute toutes aujourd hier demain oui non y ainsi aussi cependant pourtant enfin",
    "selon",
    # English
    "i he she it we you they this that these those the a an my your his her its our their there here and but or",
    "so if when while then what why how who where which because although though after before since in on at by",
    "for from with without as to of all some many most no not yes however now today yesterday tomorrow",
    # German
    "ich du er sie es wir ihr das die der dies diese dieser dieses ein eine einer mein dein sein ihre unser und",
    "aber oder wenn als dann da weil was warum wie wer wo im am nach seit mit ohne auch ja nein doch heute",
    "gestern morgen",
    # Spanish
    "él ella ellos ellas nosotros yo ello esto este esta estos estas ese esa eso los las una unos unas y pero o",
    "cuando como por para con sin en desde entonces sí hoy ayer",
    # Italian, Portuguese
    "lui lei noi voi loro io egli essa questo questa questi queste quello quella gli uno ma quando come per con",
    "dopo sì ele ela eles elas nós eu isto isso esse essa os as um uma mas quando não sim",
    # Dutch
    "hij zij ze het wij we ik jij dit dat deze die een maar en toen",
    # Russian
    "он она оно они мы я вы ты это этот эта эти но и а в на с к когда если потом так как что где кто да нет",
)
"""Pronouns, articles, conjunctions and other words that begin a sentence rather than a name."""

NAME_PARTICLES = _entries("le la les de des du el al di da do dos das van von den ter ten lo")
"""Words that begin a sentence before a small letter ("Le chat"), and a name before a capital ("Le Pen")."""

NAME_EXTENSIONS = _entries(
    "com org net edu gov info biz fr de uk eu io ch ca nl ai app dev js ts py md txt html htm css pdf jpg jpeg png gif",
    "svg exe zip csv tsv json xml php asp doc docx xls xlsx toml yaml yml",
)
"""Endings of domain and file names: "example.Com" is not the end of a sentence."""
