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


def _in(folder: str, **modules: str) -> dict[str, str]:
    """Return the full names of the modules of parts."""
    return {name: f"seepage.papers.{folder}.{module}" for name, module in modules.items()}


_matching = _in("tableak.attacks", grad_inversion="grad_inversion")
_matching |= _in("tableak.attacks", tableak_no_pooling="ablations", tableak_no_softmax="ablations")
registry.attacks.declare(_matching, "horizontal", _TABLEAK)
registry.models.declare(_in("tableak", cnn_bn="cnn"), "horizontal", _TABLEAK)
registry.datasets.declare(
    _in("tableak", health_heritage="health_heritage", lawschool="lawschool", synthetic_highdim="synthetic_highdim"),
    heading=_TABLEAK,
)

registry.datasets.declare(
    _in("exact", bank_full="bank_full", taobao="taobao", taobao_synthetic="taobao_synthetic"), heading=_EXACT
)

registry.attacks.declare(_in("uifv.attacks", sqr="sqr"), "horizontal", _UIFV)
_vertical = _in("uifv.attacks", **dict.fromkeys(("bottom_dlg", "bottom_loki", "bottom_cpa", "bottom_sqr"), "gradients"))
registry.attacks.declare(_vertical | _in("uifv.attacks", gia="white_box", grn="white_box"), "vertical", _UIFV)
registry.defenses.declare(_in("uifv", pa_imfl="defenses", vfldefender="defenses"), "vertical", _UIFV)
registry.models.declare(_in("uifv", gaussian="gaussian"), "horizontal", _UIFV)
registry.datasets.declare(
    _in("uifv", bank_additional="bank_additional", cifar10="cifar10", credit="credit"), heading=_UIFV
)

registry.attacks.declare(_in("property.attacks", melis="melis"), "pooled", _PROPERTY)
registry.datasets.declare(_in("property", crime="crime", health_years="health_years"), heading=_PROPERTY)
registry.populations.declare(
    _in("property", cora="graphs", amazon_products="graphs", clothing_reviews="reviews", yelp_health="reviews"),
    heading=_PROPERTY,
)
