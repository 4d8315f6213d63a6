"""What only repeats the printed tables of papers: a plug-in like any user's, a folder a paper.

Nothing else in the package imports it. It is loaded as plug-ins are, and adds its parts through ``Registry.declare``; a
name that the package or another plug-in has already is refused. A part of a paper that audits of one's own data use, by
default or in the documentation, is the package's own.
"""

from __future__ import annotations

from seepage import registry

_TABLEAK = "For the tables of TabLeak (Vero et al., 2023)"
_EXACT = "For the tables of EXACT (Qiu et al., 2024)"
_UIFV = "For the tables of UIFV (Yang et al., 2024)"
_PROPERTY = "For the tables on dataset properties (Zhang, Tople and Ohrimenko, 2021)"

registry.attacks.declare(
    {
        "grad_inversion": "seepage.papers.tableak.attacks.grad_inversion",
        "tableak_no_pooling": "seepage.papers.tableak.attacks.ablations",
        "tableak_no_softmax": "seepage.papers.tableak.attacks.ablations",
    },
    "horizontal",
    _TABLEAK,
)
registry.models.declare({"cnn_bn": "seepage.papers.tableak.cnn"}, "horizontal", _TABLEAK)
registry.datasets.declare(
    {
        "health_heritage": "seepage.papers.tableak.health_heritage",
        "lawschool": "seepage.papers.tableak.lawschool",
        "synthetic_highdim": "seepage.papers.tableak.synthetic_highdim",
    },
    heading=_TABLEAK,
)

registry.datasets.declare(
    {
        "bank_full": "seepage.papers.exact.bank_full",
        "taobao": "seepage.papers.exact.taobao",
        "taobao_synthetic": "seepage.papers.exact.taobao_synthetic",
    },
    heading=_EXACT,
)

registry.attacks.declare({"sqr": "seepage.papers.uifv.attacks.sqr"}, "horizontal", _UIFV)
registry.attacks.declare(
    {
        "bottom_dlg": "seepage.papers.uifv.attacks.gradients",
        "bottom_loki": "seepage.papers.uifv.attacks.gradients",
        "bottom_cpa": "seepage.papers.uifv.attacks.gradients",
        "bottom_sqr": "seepage.papers.uifv.attacks.gradients",
        "gia": "seepage.papers.uifv.attacks.white_box",
        "grn": "seepage.papers.uifv.attacks.white_box",
    },
    "vertical",
    _UIFV,
)
registry.defenses.declare(
    {"pa_imfl": "seepage.papers.uifv.defenses", "vfldefender": "seepage.papers.uifv.defenses"}, "vertical", _UIFV
)
registry.models.declare({"gaussian": "seepage.papers.uifv.gaussian"}, "horizontal", _UIFV)
registry.datasets.declare(
    {
        "bank_additional": "seepage.papers.uifv.bank_additional",
        "cifar10": "seepage.papers.uifv.cifar10",
        "credit": "seepage.papers.uifv.credit",
    },
    heading=_UIFV,
)

registry.attacks.declare({"melis": "seepage.papers.property.attacks.melis"}, "pooled", _PROPERTY)
registry.datasets.declare(
    {"crime": "seepage.papers.property.crime", "health_years": "seepage.papers.property.health_years"},
    heading=_PROPERTY,
)
registry.populations.declare(
    {
        "cora": "seepage.papers.property.graphs",
        "amazon_products": "seepage.papers.property.graphs",
        "clothing_reviews": "seepage.papers.property.reviews",
        "yelp_health": "seepage.papers.property.reviews",
    },
    heading=_PROPERTY,
)
