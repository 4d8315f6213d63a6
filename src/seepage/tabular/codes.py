"""Whole numbers that are codes and measure nothing: recognised by the column's name, or by the spread of values."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

import numpy as np


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Identifiers, keys and classification systems. A column with such a word in its name holds codes.
_CODES = _words(
    "code codes codigo codigos codice codici kode kodes id ids identifier identifiers identifiant identificador "
    "ident key schlussel schluessel kennziffer kennung clave cle barcode matrikel matricule matricola matricula "
    "concept icd icdo icpc cim snomed sct sctid loinc atc ndc pzn rxnorm rxcui cui meddra drg gdrg msdrg apdrg ghm "
    "opcs ccam cpt hcpcs mesh omim naics nace isic noga naf gics isco kldb ssyk taric cpv unspsc ean upc gtin sku "
    "asin isbn issn zip zips zipcode postcode postal plz postleitzahl cep fips nuts lau insee geoid lsoa msoa cbsa "
    "ssn mrn npi imsi imei msisdn vin cusip isin iban blz uid uuid guid phone telephone telefon telefono tel fax "
    "siret siren cnpj cpf dni nif bsn pesel kod kodu kodas serial pk fk pid tid hhid unitid ipeds opeid apn teryt "
    "okato oktmo kladr okved okpo ogrn snils regon cedula aadhaar cnae cbo cnes clues cve ageb ubigeo ibge puma "
    "matnr werks bukrs kunnr lifnr pernr wgr warengruppe rpps finess aprdrg gsn gpi occp naicsp indp imo mmsi"
)
# What is numbered as often as it is named: a whole number in such a column is one's number.
_THINGS = _words(
    "abteilung fachabteilung department dept departement departamento ward site store shop branch filiale hospital "
    "clinic klinik hopital county community state region province provincia provinz district distrito municipality "
    "gemeinde commune municipio city stadt ville ciudad country land pays pais brand campaign customer kunde "
    "cliente user patient paciente subject proband member employee vendor supplier seller merchant product produkt "
    "producto article artikel item category cate kategorie categoria categorie diagnosis diagnose diagnostico diag "
    "dx procedure prozedur proc occupation beruf profession industry branche sector provider physician station "
    "sensor tract kreis bezirk kanton canton arrondissement prefecture parish powiat gmina oblast ilce kommun "
    "kommune sucursal agence agencia mandant terminal warehouse depot route batch lot respondent household adgroup "
    "creative room zimmer"
)
# Words that come before "id", "nr" or "no" in the same word, besides these.
_BEFORE = _THINGS | _words(
    "person personal pers pat pt cust emp subj usubj hadm icustay stay seg group adgroup ad account konto acct geo "
    "loc location session transaction order invoice rechnung auftrag visit encounter enc episode case fall record "
    "row sample specimen tract block parcel trip route driver student school teacher team movie book paper node "
    "event ticket claim policy loan contract vertrag bene beneficiary service device care room zimmer lot batch "
    "charge haus dossier fichier ligne kunden versicherten mitglied mitglieds patienten artikel akten doctor class "
    "wohn hosp prov client klient klienta kund doc documento aluno pessoa persona usuario unit hh resp indiv"
)
# Numbers of things, where they come last: "ward_no", "Kunden-Nr."
_NUMBERS = _words("nr nro no num nbr number nummer numero")
# What is numbered in order, so that its number is an amount ("visit_number").
_IN_ORDER = _words("visit episode event session trip order row day week round")
# Words that are a system of codes in some tables and something else in others; the values must speak for codes, too.
_MAYBE = _words(
    "sic soc ops ape mcc msa ags ars cod hs ccs din bin dpt cap cp mobile handy cid pin nip inn occ lac tac hsn tsn "
    "kennz ref reference referenz"
)
# Systems of which some codes are written with a decimal point.
_WITH_POINTS = _words("icd icdo cim diag dx diagnosis diagnose diagnostico drg")
_JOINED = (
    "code",
    "codes",
    "kode",
    "nummer",
    "schlussel",
    "schluessel",
    "kennziffer",
    "kennung",
    "leitzahl",
    "plz",
    "idnum",
    "hospid",
    "fip",
    "numero",
    "tunnus",
    "barkod",
)
# Keys of days are dates for all their digits: "DateKey".
_DATES = _words("date dates datum day dia fecha giorno jour dt ymd yyyymmdd dob calendar kalender")
# Names of what is measured or counted: after a word for codes they are what the column holds ("zip_income").
_MEASURES = _words(
    "count counts cnt n anzahl amount betrag montant importe sum summe total mean avg average median min max std "
    "score points rate ratio pct percent percentage share proportion weight gewicht height length size volume price "
    "prices preis prix precio cost costs kosten salary gehalt income einkommen revenue umsatz sales balance gain "
    "loss value age alter edad year years jahr jahre month months days tage hours minutes seconds time duration "
    "dauer distance dist population einwohner frequency freq calls visits usage charge charges fee dose dosis "
    "temperature pressure lat lon latitude longitude density rank wage pay debt limit credit tax bill cholesterol "
    "glucose gdp bip pop quantity qty menge cantidad quantite beds betten clicks views presses crime crimes latency "
    "amt bal val wert valeur valor depth tiefe elevation altitude hohe hoehe calories horsepower mileage energy "
    "power speed rent miete loyer fare discount rabatt premium pramie praemie ferritin deposit loan flache "
    "superficie"
)
# Units, where they come last: "weight_kg".
_UNITS = _words("kg mg ml cm mm km kcal kj kw kwh usd eur chf gbp sqft sqm ms sec yrs")
# What a measure is of, or by: "income_by_zip", "avg_income_zip".
_OF = _words("by per je pro par por")
_AVERAGES = _words("avg mean average median mittlere moyenne media")
# "n_codes", "no_claims", "Anzahl der Nummern".
_COUNTED = _words("n no nr nro nb nbr num numero numer number count cnt anzahl anz nombre total sum")
_INDEX = re.compile(r"unnamed: ?[0-9]+", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# A value every so many rows, neighbours so far apart, and so many digits: amounts that vary freely repeat less.
_REPEATS, _GAP, _SMALLEST = 4, 5, 100
# Shares of round values, and of gaps nearly equal to their median, above which values lie on a scale.
_ROUND_FIVE, _ROUND_TEN, _EVEN_GAPS = 0.5, 0.3, 0.35
# Rank correlation of values and their frequencies below which they are counts.
_FALLING = -0.7
_YEARS = (1800, 2150)

Name = Literal["codes", "things", "maybe", "measured", ""]


def words_of(name: str) -> list[str]:
    """Return the words of a column's name: small letters without accents, split at signs, digits and inner capitals.

    Example:
        >>> words_of("Fach-AbteilungsSchlüssel_2"), words_of("ICD9Code")
        (['fach', 'abteilungs', 'schlussel'], ['icd', 'code'])
    """
    bare = "".join(c for c in unicodedata.normalize("NFKD", name.replace("ß", "ss")) if not unicodedata.combining(c))
    return re.findall("[a-z]+", _CAMEL.sub(" ", bare).lower())


def meaning_of_name(name: str) -> tuple[Name, str]:
    """Return what a column's name says of whole numbers in it, and the word that says so.

    ``codes`` is said by identifiers and systems of codes, ``things`` by what has a number or is counted (``store``),
    ``maybe`` by words with other meanings too, ``measured`` by amounts. The last word that says anything counts, as in
    ``zip_income`` and ``income_code``; a word for a number of things at the beginning makes it a count.
    """
    if _INDEX.fullmatch(name.strip()):
        return "codes", "unnamed"
    words = words_of(name)
    # Written together, "ICDcode" and "MEMBERid" have no inner capital to split at.
    whole = re.findall("[a-z]+", "".join(c for c in unicodedata.normalize("NFKD", name) if c.isascii()).lower())
    is_code = bool(words) and words[-1] in _CODES and not words[-1].endswith("s")
    if len(words) > 1 and words[0] in _COUNTED and not (is_code and words[0] not in ("n", "count", "total", "sum")):
        # "num_dossier" is a number of a file, "num_claims" how many there are.
        several = words[0] in ("n", "count", "total", "sum") or words[-1].endswith("s") or words[-1] not in _BEFORE
        return ("measured" if several else "maybe"), words[0]
    if len(words) > 1 and words[-1] == "cd" and name.strip()[-1].isalpha():
        # "PROD_CD"; cells that carry CD4 are counted.
        return "maybe", "cd"
    for i in reversed(range(len(words))):
        meaning = _meaning_of_word(words[i], last=i == len(words) - 1, before=words[:i])
        if meaning == "codes" and i < len(words) - 1 and _several(words[-1]):
            # "code_reviews", "barcode_scans".
            return "", ""
        if meaning:
            return meaning, words[i]
    joined = next((word for word in whole if word not in words and _meaning_of_word(word, True, []) == "codes"), None)
    return ("codes", joined) if joined else ("", "")


def _meaning_of_word(word: str, last: bool, before: list[str]) -> Name:
    if word in _CODES:
        of_a_measure = not _OF.isdisjoint(before) or (before[:1] and before[0] in _AVERAGES)
        return "measured" if of_a_measure and word not in ("id", "code", "key") and _measures(before) else "codes"
    if word in _MEASURES or (last and before and word in _UNITS):
        return "measured"
    if last and word in _THINGS:
        # "DaysInHospital", "visits_per_store".
        return "measured" if _measures(before) else "things"
    if last and word in _NUMBERS and before:
        things = {_singular(other) for other in before}
        return "codes" if things & _BEFORE and not things & _IN_ORDER else "maybe"
    if any(word.endswith(end) and len(word) > len(end) + 1 for end in _JOINED):
        return "codes"
    if word.startswith("id") and word.removeprefix("id") in _BEFORE:
        return "codes"
    for end in ("id", "nr", "no", "num"):
        if word.endswith(end) and word.removesuffix(end) in _BEFORE:
            return "codes"
    if (word.endswith("nr") or (word.startswith("cod") and "coding" not in word)) and len(word) > 4:
        # "Filialnr", "CODMUNRES".
        return "maybe"
    return "maybe" if word in _MAYBE or (last and word in ("nr", "nro", "nummer", "numero")) else ""


def _several(word: str) -> bool:
    return word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3 and word not in _CODES


def speaks_of_dates(name: str) -> bool:
    """Return whether a name says that its digits are dates, be they a key or not ("DateKey")."""
    return not _DATES.isdisjoint(words_of(name))


def _measures(words: list[str]) -> bool:
    return any(word in _MEASURES for word in words)


def counted(values: np.ndarray, counts: np.ndarray) -> bool:
    """Return whether whole numbers look like counts: nearly all up to the largest, the smaller the more frequent.

    Args:
        values: different values, ascending.
        counts: number of rows that hold each.
    """
    dense = np.ptp(values) < 3 * len(values) and values[0] <= 1
    order = np.argsort(np.argsort(counts))
    return bool(dense and np.corrcoef(np.arange(len(values)), order)[0, 1] < _FALLING)


def _singular(word: str) -> str:
    return word if word in _BEFORE else word.removesuffix("s")


def has_points(name: str) -> bool:
    """Return whether codes under such a name may be written with a decimal point, as 250.01 of ICD-9."""
    return any(word in _WITH_POINTS for word in words_of(name))


def spread(values: np.ndarray, rows: int) -> Literal["codes", "maybe", ""]:
    """Return what the different whole numbers of a column say by themselves: few of them, far apart, on no scale.

    Numbers that are measured or counted take nearly all values between their ends, or the values of a scale (multiples
    of 5, 10 or another step, at even distances). Codes leave most of them out, irregularly, and have as many digits.
    Years and columns with small numbers are never codes by their values.

    Args:
        values: different values, ascending.
        rows: number of rows that they occur in.

    Example:
        >>> codes = np.array([10213, 10388, 14007, 21542, 22219, 40873, 41604, 70491, 71216, 90127, 98333])
        >>> spread(codes, 200)
        'codes'
        >>> spread(np.arange(100, 300, 10), 200), spread(np.arange(18, 90), 2000)
        ('maybe', '')
    """
    if len(values) < 3 or rows < _REPEATS * len(values) or values[0] < _SMALLEST:
        return ""
    gaps = np.diff(values)
    middle = float(np.median(gaps))
    if middle < _GAP or (values[0] >= _YEARS[0] and values[-1] <= _YEARS[1]):
        return ""
    # Of two or three digits even measured values leave most out, in few rows.
    digits = {len(str(int(abs(value)))) for value in (values[0], values[-1])}
    alike = len(digits) == 1 or (values[0] >= 10_000 and values[-1] < 100 * values[0])
    step = int(np.gcd.reduce((values - values[0]).astype(np.int64)))
    regular = np.mean(np.abs(gaps - middle) <= 0.2 * middle) > _EVEN_GAPS
    rounded = np.mean(values % 5 == 0) > _ROUND_FIVE or np.mean(values % 10 == 0) > _ROUND_TEN
    return "codes" if alike and step == 1 and not regular and not rounded else "maybe"


def speaks_for_codes(values: np.ndarray) -> bool:
    """Return whether whole numbers may be codes where the name leaves it open: none is small."""
    return bool(values[0] >= _SMALLEST and not (values[0] >= _YEARS[0] and values[-1] <= _YEARS[1]))
