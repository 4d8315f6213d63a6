"""Horizontal learning: specs, tables and networks, and the audit."""

from seepage.settings.catalogue import Setting, add_setting

add_setting(
    Setting(
        "horizontal",
        "horizontal learning: what the server reads of the records behind gradients and updates",
        "seepage.settings.horizontal.spec:HorizontalSpec",
        "seepage.settings.horizontal.audit:prepared_audit",
        "seepage.settings.horizontal.audit:deployment",
        command="audit",
        order=0,
        protocols={
            "fedavg": "seepage.protocols.fedavg",
            "fedsgd": "seepage.protocols.fedsgd",
        },
        attacks={
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
        baselines={
            "stereotypes": "seepage.baselines.stereotypes",
            "chow_liu": "seepage.baselines.chow_liu",
            "likeliest": "seepage.baselines.mode",
            "mode": "seepage.baselines.mode",
            "random": "seepage.baselines.random",
        },
        defenses={
            "aggregation": "seepage.defenses.aggregation",
            "clipping": "seepage.defenses.clipping",
            "dp_sgd": "seepage.defenses.dp_sgd",
            "gaussian_noise": "seepage.defenses.gaussian_noise",
            "sign": "seepage.defenses.sign",
            "soteria": "seepage.defenses.soteria",
            "top_k": "seepage.defenses.top_k",
        },
        views={
            "GradientView": "a gradient",
            "UpdateView": "an update",
            "RoundsView": "messages of several rounds",
        },
    )
)
