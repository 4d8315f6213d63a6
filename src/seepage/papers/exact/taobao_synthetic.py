"""A generated log with the columns, categories and share of clicks of Taobao's: it is not Taobao's log."""

from __future__ import annotations

import numpy as np
import pandas as pd

from seepage.datasets.about import DatasetCard, dataset
from seepage.datasets.dataset import Dataset
from seepage.errors import BadInputError
from seepage.papers.exact.taobao import from_log

_ROWS = 100_000
CARD = DatasetCard(
    name="taobao_synthetic",
    rows=_ROWS,
    columns=12,
    width=None,
    target="clk",
    source="generated, with the columns of Taobao's ad log",
    licence="none needed",
    notes=("generated: says nothing about Taobao's users",),
)

# Rows per advertisement, and per user, in the original log.
_PER_AD, _PER_USER = 31.4, 25.0
# Advertisements per campaign, customer, brand and category in the original log.
_CAMPAIGN, _CUSTOMER, _BRAND, _CATE = 2.0, 3.3, 8.5, 125.0
# Shares of the levels.
_AGES = (0.02, 0.09, 0.22, 0.27, 0.24, 0.14, 0.02)
_PVALUES = (0.36, 0.56, 0.08)
_SHOPPING = (0.04, 0.06, 0.90)
_STUDENTS = 0.06
_CLICKS = 0.0514


@dataset(CARD)
def taobao_synthetic(rows: int = _ROWS, cms_group: bool = True, test_share: float = 0.1, seed: int = 0) -> Dataset:
    """A generated log like Taobao's, for runs at any scale; nothing in it is real.

    The ratios of advertisements and users to rows, the sizes of campaigns, customers, brands and categories, and the
    share of clicks are the original's. Users' levels depend on each other and on the advertisements they see, so that
    a prediction from advertisements is better than chance. Clicks depend on both weakly, as in the original, where
    networks reach an AUC of about 0.66.

    There are at least 100 rows; other arguments are as for ``taobao``, the seed is that of the log and the split.

    Example:
        >>> data = taobao_synthetic(rows=2_000)
        >>> data.schema.columns[1].name, [c.width for c in data.schema.columns if c.name in ("cms_group", "age")]
        ('adgroup', [13, 7])
    """
    if rows < 100:
        raise BadInputError(f"a generated log needs at least 100 rows, got {rows}; give more.")
    generator = np.random.default_rng(seed)
    ads, users = max(20, round(rows / _PER_AD)), max(20, round(rows / _PER_USER))
    # Larger units hold smaller ones: a customer's campaigns, a category's advertisements.
    customer = generator.integers(0, max(2, round(ads / _CUSTOMER)), ads)
    campaign = customer * 4 + generator.integers(0, max(1, round(_CUSTOMER / _CAMPAIGN)), ads)
    cate = generator.integers(0, max(5, round(ads / _CATE)), ads)
    brand = cate * 1_000 + generator.integers(0, max(1, round(_CATE / _BRAND)), ads)
    price = np.round(np.exp(generator.normal(5.0, 1.2, ads)), 2)
    age = generator.choice(7, users, p=np.array(_AGES) / sum(_AGES))
    woman = generator.random(users) < 0.64
    pvalue = 1 + np.clip(generator.choice(3, users, p=_PVALUES) + (age > 3) * (generator.random(users) < 0.3), 0, 2)
    shopping = 1 + generator.choice(3, users, p=_SHOPPING)
    occupation = (generator.random(users) < np.where(age < 3, 5 * _STUDENTS, _STUDENTS / 4)).astype(int)
    # Six age groups of women, six of men, and one for users who do not say.
    group = np.where(age == 0, 0, np.where(woman, age, 6 + age))
    taste = generator.normal(size=(int(cate.max()) + 1, 3))
    kind = np.stack([(age - 3) / 2, pvalue - 1.7, np.where(woman, 0.5, -0.5)], axis=1)
    shown = generator.integers(0, users, rows)
    offered = generator.integers(0, ads, (rows, 4))
    suits = (taste[cate[offered]] * kind[shown][:, None]).sum(2) + generator.gumbel(size=(rows, 4))
    ad = offered[np.arange(rows), suits.argmax(1)]
    score = 0.35 * (taste[cate[ad]] * kind[shown]).sum(1) + 0.4 * generator.normal(size=ads)[ad]
    score += 0.3 * generator.normal(size=int(brand.max()) + 1)[brand[ad]]
    noisy = score + generator.logistic(size=rows)
    clk = (noisy > np.quantile(noisy, 1 - _CLICKS)).astype(int)
    of_ads = {"cate": cate, "campaign": campaign, "customer": customer, "brand": brand, "price": price}
    of_users = {"cms_group": group, "age": age, "pvalue": pvalue, "shopping": shopping, "occupation": occupation}
    frame = pd.DataFrame(
        {
            **{"pid": generator.integers(0, 2, rows), "adgroup": ad, "clk": clk},
            **{name: values[ad] for name, values in of_ads.items()},
            **{name: values[shown] for name, values in of_users.items()},
        }
    )
    notes = (f"generated with seed {seed}: not Taobao's log",)
    return from_log(CARD, frame, cms_group, notes, test_share, seed)
