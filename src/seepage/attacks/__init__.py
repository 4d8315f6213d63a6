"""What a curious participant does with its view, by setting. A new attack is one file and one line here."""

from __future__ import annotations

from seepage.registry import Attack, attacks

# Registered name and module, which is imported when the attack is first made.
attacks.declare(
    {
        "cocktail_party": "seepage.attacks.horizontal.exact.cocktail_party",
        "loki": "seepage.attacks.horizontal.exact.loki",
        "rgap": "seepage.attacks.horizontal.exact.rgap",
        "robbing_the_fed": "seepage.attacks.horizontal.exact.robbing_the_fed",
        "single_activation": "seepage.attacks.horizontal.exact.single_activation",
        "spear": "seepage.attacks.horizontal.exact.spear",
        "unmix": "seepage.attacks.horizontal.exact.unmix",
        "dlg": "seepage.attacks.horizontal.matching.dlg",
        "inverting_gradients": "seepage.attacks.horizontal.matching.inverting_gradients",
        "tableak": "seepage.attacks.horizontal.matching.tableak",
    },
    "horizontal",
)
attacks.declare(
    {
        "exact": "seepage.attacks.split.exact",
        "fsha": "seepage.attacks.split.fsha",
        "pcat": "seepage.attacks.split.pseudo",
        "posterior": "seepage.attacks.split.posterior",
        "sdar": "seepage.attacks.split.pseudo",
        "unsplit": "seepage.attacks.split.unsplit",
        "label_heads": "seepage.attacks.labels.heads",
        "label_norm": "seepage.attacks.labels.scores",
        "label_direction": "seepage.attacks.labels.scores",
        "label_completion": "seepage.attacks.labels.completion",
        "layer_inversion": "seepage.attacks.vertical.layer_inversion",
        "ginver": "seepage.attacks.vertical.white_box",
        "informed_sa": "seepage.attacks.vertical.informed",
        "ridge_sa": "seepage.attacks.vertical.ridge",
    },
    "split",
)
attacks.declare(
    {
        "ginver": "seepage.attacks.vertical.white_box",
        "esa": "seepage.attacks.vertical.equality",
        "layer_inversion": "seepage.attacks.vertical.layer_inversion",
        "ridge_sa": "seepage.attacks.vertical.ridge",
        "sdar": "seepage.attacks.vertical.sdar",
        "student_dpa": "seepage.attacks.vertical.student",
        "informed_qa": "seepage.attacks.vertical.informed",
        "informed_sa": "seepage.attacks.vertical.informed",
        "uifv_qa": "seepage.attacks.vertical.uifv",
        "uifv_dpa": "seepage.attacks.vertical.uifv",
        "uifv_iqa": "seepage.attacks.vertical.uifv",
        "uifv_sa": "seepage.attacks.vertical.uifv",
        "label_heads": "seepage.attacks.labels.heads",
        "label_norm": "seepage.attacks.labels.scores",
        "label_direction": "seepage.attacks.labels.scores",
        "label_completion": "seepage.attacks.labels.completion",
        "label_completion_active": "seepage.attacks.labels.completion",
        "label_direct": "seepage.attacks.labels.completion",
        "label_batch": "seepage.attacks.labels.batch",
    },
    "vertical",
)
attacks.declare(
    {
        "deep_sets": "seepage.attacks.pooled.deep_sets",
        "kl": "seepage.attacks.pooled.kl",
        "meta": "seepage.attacks.pooled.meta",
        "ratio": "seepage.attacks.pooled.ratio",
        "dominant": "seepage.attacks.pooled.update",
        "joint": "seepage.attacks.pooled.update",
        "white_box": "seepage.attacks.pooled.white_box",
    },
    "pooled",
)

attacks.declare(
    {
        "anchor": "seepage.attacks.trees.anchor",
        "bin_sums": "seepage.attacks.trees.bin_sums",
        "hessians": "seepage.attacks.trees.files",
        "leaf_counts": "seepage.attacks.trees.files",
        "node_clusters": "seepage.attacks.labels.nodes",
        "node_heads": "seepage.attacks.labels.nodes",
        "thresholds": "seepage.attacks.trees.files",
        "timberstrike": "seepage.attacks.trees.timberstrike",
    },
    "trees",
)
attacks.declare(
    {
        "counts": "seepage.attacks.statistics.counts",
        "differencing": "seepage.attacks.statistics.differencing",
        "risk_sets": "seepage.attacks.statistics.risk_sets",
    },
    "statistics",
)


def create(name: str, **options: object) -> Attack:
    """Return an attack, ready to be called with a view, knowledge and seeds.

    Args:
        name: registered name, in any setting.
        options: arguments of the attack.

    Raises:
        BadInputError: the name or an option is unknown.

    Example:
        >>> create("tableak", restarts=3).restarts
        3
    """
    return attacks.create(name, **options)
