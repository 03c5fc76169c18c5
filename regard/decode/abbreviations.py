"""Abbreviations that are written with a full stop, by language, for the sentence splitter.

Entries are lower-case and without their last full stop. An entry of two words ("p. ex") must match both; one that
begins with a bracket matches only directly after it. Single letters, and letters with full stops between them (e.g.,
U.S., z. B.), need no entry: the splitter knows them by their form. Words that also exist without the full stop are
listed only where a sentence would rarely end with them in any of these languages.
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
            "mm mme mmes mlle mlles mgr dr drs pr prof st ste cf éd ed éds eds env av apr bd boul hab gén gen gal capt",
            "lt sgt adj mtre vve janv févr fevr fév fev avr oct nov déc dec réf sté fbg chev (ex (env",
            pairs=("p. ex", "par ex"),
        ),
        _entries("etc suiv cie", pairs=("et al",)),
        _entries("no nos nº n° art vol chap fig pp juil sept mars ex al liv t tab tél tel"),
    ),
    "en": Abbreviations(
        _entries(
            "mr mrs ms messrs dr drs prof st rev hon gen capt cpt lt sgt maj gov sen rep pres supt dept vs viz approx",
            "cf ie eg eds ed mt ft nov oct dec (ex",
        ),
        _entries("etc jr sr esq inc ltd co corp bros llc ave blvd rd apt ph.d ed.d m.sc b.sc", pairs=("et al",)),
        _entries("no nos art vol chap ch fig figs pp jan feb mar apr jun jul aug sep sept sec eq tab ex tel ext"),
    ),
    "de": Abbreviations(
        _entries(
            "dr prof hr fr frl dipl ing dipl.-ing bzw vgl sog sogen zb evtl ggf inkl exkl zzgl bspw insb insbes lt nr",
            "str abb geb gest verh hrsg allg ehem mio mrd st",
        ),
        _entries("usw usf etc bd jh jhd jhdt ff gmbh co"),
        _entries("art abs bd kap s nr jan feb apr aug sept okt nov dez ziff ca tel max min"),
    ),
    "es": Abbreviations(
        _entries(
            "sr sra sres sras srta dr dra dres prof profa lic ing arq gral cnel tte ud uds vd vds dña avda pág págs",
            "núm aprox ej dpto depto mons ee aa",
            pairs=("p. ej", "por ej"),
        ),
        _entries("etc cía ltda hnos s.l ss", pairs=("ee. uu", "aa. vv")),
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
    "hi": Abbreviations(_entries("डॉ डा प्रो श्री श्रीमती कु सं पं मो")),
}
"""By ISO 639-1 code."""

ORDINAL_NOUNS = _entries(
    "januar februar märz april mai juni juli august september oktober november dezember jänner jahrhundert weltkrieg",
    "klasse stock etage auflage kapitel jahrtausend jh jhd",  # German
    "ledna února března dubna května června července srpna září října listopadu prosince století",  # Czech
    "tammikuuta helmikuuta maaliskuuta huhtikuuta toukokuuta kesäkuuta heinäkuuta elokuuta syyskuuta lokakuuta",
    "marraskuuta joulukuuta",  # Finnish
    "marts maj juni juli oktober desember januari februari",  # Scandinavian
)
"""Nouns, mostly months, that follow an ordinal number in languages that write ordinals with a full stop ("3. Mai")."""
