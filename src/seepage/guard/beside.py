"""What a client's reply may carry beside the model: one rule for all integrations.

The guard reads tensors of the model and nothing else. Whatever else a reply holds leaves only where it can be no row: a
few numbers, each under the name of a usual metric, or under a name that the policy lists.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Integral, Real

from seepage.errors import BadInputError
from seepage.protocols.recipe import MOST_RECORDS

MOST_NUMBERS = 16
"""Numbers that a reply may carry beside the model: fewer than the cells of most records."""

_MOST_COUNTED = 2**30  # records that a test was of, which the guard does not replay
_LARGEST = 2**63  # whole numbers from which on serialisers of federations end
_LONGEST = 64  # characters of a name
_SEPARATED = re.compile(r"[-_./: ]+")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Words of which digits are a usual part: f1, r2, top5, precision at 10.
_BEFORE_DIGITS = frozenset({"f", "r", "l", "p", "k", "top", "at"})
_WORDS_OF = {
    "measured": (
        "loss losses nll bce ce ppl perplexity logloss log likelihood cross entropy accuracy accuracies acc auc auroc "
        "auprc roc pr ap precision recall sensitivity specificity tpr fpr tnr fnr tp fp tn fn f r l p k top at score "
        "scores error err mse rmse mae mape msle kappa mcc brier ece iou dice ndcg map hit gini lift explained "
        "variance metric metrics squared absolute root positive positives negative negatives true false"
    ),
    "where, when and how": (
        "train trained training fit eval evaluate evaluated evaluation val valid validation validate test tested "
        "testing local global central federated client server site model initial final best worst start current last "
        "first before after mean avg average weighted balanced macro micro binary std min max sum total running median "
        "per of in on the and by to"
    ),
    "counts, time and settings of a training": (
        "num number n count examples example samples sample instances records data dataset size batch batches step "
        "steps iteration iterations iter epoch epochs round rounds time times seconds sec s ms duration elapsed "
        "runtime lr learning rate momentum decay grad gradient gradients norm clip clipping epsilon delta noise memory "
        "mem mb gb cpu gpu usage weight weights"
    ),
    "records and states": (
        "arrays array parameters params state dict update updates reply result results content config status code "
        "message fitres evaluateres"
    ),
}
_WORDS = frozenset(word for words in _WORDS_OF.values() for word in words.split())
# Texts of a status that say nothing else.
_STATUS = frozenset({"", "Success"})


def check_beside(parts: Iterable[tuple[Sequence[str], object]], further: Collection[str] = ()) -> None:
    """Refuse what a reply carries beside the model, unless it is a few numbers under usual names.

    Args:
        parts: places and values: the names of a value, from the outermost in, and what stands there.
        further: names of numbers, of any words, that may leave too.

    Raises:
        BadInputError: a name is of unknown words, a value is no single number, or there are too many. The text names
            the place and the type, and never the value.

    Example:
        >>> check_beside([(("metrics", "train-loss"), 0.3), (("metrics", "num-examples"), 8)])
        >>> check_beside([(("metrics", "ages"), [39.0, 50.0])])
        Traceback (most recent call last):
        ...
        seepage.errors.BadInputError: a reply carries numbers ... 'metrics/ages' is not made of words of usual ...
    """
    numbers = 0
    for names, value in parts:
        place = "/".join(names)
        for name in names:
            check_name(name, place, further)
        empty = isinstance(value, Mapping) and not value
        if empty or (isinstance(value, str) and value in _STATUS):
            continue
        if not is_number(value):
            raise BadInputError(f"{_RULE}; {place!r} holds {_kind(value)}, which may be rows; leave it out.")
        numbers += 1
    if numbers > MOST_NUMBERS:
        raise BadInputError(
            f"a reply carries at most {MOST_NUMBERS} numbers beside the model, got {numbers}; leave some out."
        )


_RULE = "a reply carries numbers under the names of usual metrics beside the model, and nothing else"


def check_name(name: str, place: str, further: Collection[str] = ()) -> None:
    """Refuse a name that holds other words than usual metrics do, or other digits, since names may hold cells."""
    if name in further or (len(name) <= _LONGEST and _is_usual(name)):
        return
    raise BadInputError(
        f"{_RULE}; {place!r} is not made of words of usual metrics; leave it out, or list the name under 'metrics' of "
        "the guard's policy."
    )


def is_number(value: object) -> bool:
    """Return whether a value is one number, which a federation can send."""
    if not isinstance(value, Real):
        return False
    return not isinstance(value, Integral) or abs(int(value)) < _LARGEST


def counted_records(value: object, name: str, *, trained: bool) -> int:
    """Return how many records a reply says it is of.

    Raises:
        BadInputError: it is no whole number, or out of bounds: 1 to 2**20 for an update, 0 to 2**30 for other replies.
    """
    least, most = (1, MOST_RECORDS) if trained else (0, _MOST_COUNTED)
    # Neither nan nor an infinite number lies between.
    if (
        isinstance(value, Real)
        and not isinstance(value, bool)
        and least <= float(value) <= most
        and not float(value) % 1
    ):
        return int(float(value))
    given = f"{value}" if is_number(value) else _kind(value)
    raise BadInputError(
        f"{name!r} says how many records a reply is of: a whole number from {least} to {most:,}; got {given}."
    )


def without_text(error: BaseException) -> str:
    """Return what may be said of an exception elsewhere: its type. Its text may hold cells, as those of pandas do."""
    return f"{type(error).__name__} was raised at the client; its text is in the client's own log, as it may hold cells"


def _is_usual(name: str) -> bool:
    words = [word for part in _SEPARATED.split(name) for word in _WORD.findall(part)]
    if not words or sum(map(len, words)) != len(_SEPARATED.sub("", name)):
        return False
    before = ""
    for word in words:
        known = len(word) <= 2 and before in _BEFORE_DIGITS if word.isdigit() else word.lower() in _WORDS
        if not known:
            return False
        before = word.lower()
    return True


def _kind(value: object) -> str:
    """Return a value's type in words, and its length where it has one."""
    if isinstance(value, Sequence | set | dict) or hasattr(value, "shape"):
        size = getattr(value, "shape", None)
        return f"{type(value).__name__} of {f'shape {tuple(size)}' if size is not None else f'length {len(value)}'}"  # pyright: ignore[reportArgumentType]
    return f"a value of type {type(value).__name__}"
