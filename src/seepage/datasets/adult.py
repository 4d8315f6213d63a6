"""Adult: census income of 1994, the table most of the literature uses. Some papers call it income."""

from __future__ import annotations

from seepage.datasets.about import DatasetCard, dataset
from seepage.datasets.dataset import Dataset, bundled, measured
from seepage.errors import BadInputError
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table

CARD = DatasetCard(
    name="adult",
    rows=45_222,
    columns=14,
    width=105,
    target="income",
    source="Becker and Kohavi, Adult, UCI Machine Learning Repository, doi:10.24432/C5XW20",
    licence="CC BY 4.0",
    home="https://archive.ics.uci.edu/dataset/2/adult",
    bundled=True,
)

# In the order of the published adult.names.
# fmt: off
WORKCLASS = (
    "Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov", "Without-pay",
    "Never-worked",
)
EDUCATION = (
    "Bachelors", "Some-college", "11th", "HS-grad", "Prof-school", "Assoc-acdm", "Assoc-voc", "9th", "7th-8th", "12th",
    "Masters", "1st-4th", "10th", "Doctorate", "5th-6th", "Preschool",
)
MARITAL_STATUS = (
    "Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed", "Married-spouse-absent",
    "Married-AF-spouse",
)
OCCUPATION = (
    "Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty", "Handlers-cleaners",
    "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving", "Priv-house-serv", "Protective-serv",
    "Armed-Forces",
)
RELATIONSHIP = ("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried")
RACE = ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black")
NATIVE_COUNTRY = (
    "United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany", "Outlying-US(Guam-USVI-etc)", "India",
    "Japan", "Greece", "South", "China", "Cuba", "Iran", "Honduras", "Philippines", "Italy", "Poland", "Jamaica",
    "Vietnam", "Mexico", "Portugal", "Ireland", "France", "Dominican-Republic", "Laos", "Ecuador", "Taiwan", "Haiti",
    "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand", "Yugoslavia", "El-Salvador",
    "Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands",
)
# fmt: on


@dataset(CARD)
def adult(missing: str = "drop") -> Dataset:
    """Census income (UCI Adult), bundled: 45,222 complete rows of 48,842, the official two parts.

    Columns, categories and cleaning are TabLeak's (section 4 and its official code). The target's
    code 1 is "<=50K", the majority, because that is the last value its code lists.

    Args:
        missing: treatment of rows with a missing value: ``drop`` them as TabLeak does, or keep all 48,842 and give the
            three columns that have any (workclass, occupation, native-country) a further category "?", which makes 108
            encoded columns.

    Raises:
        BadInputError: ``missing`` is neither.

    Example:
        >>> data = adult()
        >>> len(data.train), len(data.test), data.schema.width
        (30162, 15060, 105)
    """
    frame = bundled("adult")
    if missing == "drop":
        frame = frame.dropna(ignore_index=True)
        unknown: tuple[str, ...] = ()
        notes = ("rows with a missing value are dropped: 45,222 of 48,842 remain",)
    elif missing == "category":
        frame = frame.fillna("?")
        unknown = ("?",)
        notes = ("a missing value is a category of its own, '?', in workclass, occupation and native-country",)
    else:
        raise BadInputError(
            f"missing must be 'drop' (leave out rows with a missing value) or 'category' "
            f"(make missing a category of its own), got {missing!r}."
        )

    def number(name: str, unit: str, sensitive: bool = False) -> Continuous:
        return measured(frame[name], unit=unit, sensitive=sensitive)

    schema = Schema(
        columns=(
            number("age", "years", sensitive=True),
            Discrete(name="workclass", categories=WORKCLASS + unknown),
            number("fnlwgt", "people represented"),
            Discrete(name="education", categories=EDUCATION),
            number("education-num", "level of 1 to 16"),
            Discrete(name="marital-status", categories=MARITAL_STATUS, sensitive=True),
            Discrete(name="occupation", categories=OCCUPATION + unknown),
            Discrete(name="relationship", categories=RELATIONSHIP, sensitive=True),
            Discrete(name="race", categories=RACE, sensitive=True),
            Discrete(name="sex", categories=("Female", "Male"), sensitive=True),
            number("capital-gain", "USD a year", sensitive=True),
            number("capital-loss", "USD a year", sensitive=True),
            number("hours-per-week", "hours"),
            Discrete(name="native-country", categories=NATIVE_COUNTRY + unknown, sensitive=True),
        ),
        target=Discrete(name="income", categories=(">50K", "<=50K"), sensitive=True, unit="USD a year"),
    )
    in_train = frame["part"] == "train"
    train, test = Table(schema, frame[in_train]), Table(schema, frame[~in_train])
    return Dataset(CARD.name, train, test, notes, CARD.source, CARD.licence)
