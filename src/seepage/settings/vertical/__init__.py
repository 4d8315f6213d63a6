"""Vertical learning: specs, and the audit."""

from seepage.settings.catalogue import Setting, add_setting

add_setting(
    Setting(
        "vertical",
        "vertical learning: what the active party reads of a passive party's columns",
        "seepage.settings.vertical.spec:VerticalSpec",
        "seepage.settings.vertical.audit:VerticalAudit.prepared",
        "seepage.settings.vertical.audit:deployment",
        order=2,
        reader_at="seepage.settings.vertical.read:READER",
        attacks={
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
        baselines={
            "constant": "seepage.baselines.vertical",
            "median": "seepage.baselines.vertical",
            "random": "seepage.baselines.vertical",
            "imputer": "seepage.baselines.imputer",
            "own_columns": "seepage.baselines.vertical",
            "label_mode": "seepage.baselines.labels",
            "label_columns": "seepage.baselines.labels",
        },
        defenses={
            "bottleneck": "seepage.defenses.bottleneck",
            "feature_noise": "seepage.defenses.feature_noise",
            "label_flip": "seepage.defenses.label_flip",
            "mid": "seepage.defenses.mid",
            "nopeek": "seepage.defenses.nopeek",
            "returned_noise": "seepage.defenses.returned",
            "marvell": "seepage.defenses.marvell",
            "max_norm": "seepage.defenses.returned",
        },
        decide={"": ({"name": "feature_noise", "scale": 0.1}, {"name": "feature_noise", "scale": 1.0})},
        views={
            "ActivationView": "activations",
            "SmashedView": "activations",
            "FeatureView": "features of every party",
        },
    )
)
