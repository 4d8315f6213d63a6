"""Pooled learning: specs, parties and their models, and the audit."""

from seepage.settings.catalogue import Setting, add_setting

add_setting(
    Setting(
        "pooled",
        "pooled learning: what a joint model's answers tell of a sensitive column's distribution",
        "seepage.settings.pooled.spec:PooledSpec",
        "seepage.settings.pooled.audit:PooledAudit.prepared",
        "seepage.settings.pooled.audit:deployment",
        order=3,
        attacks={
            "deep_sets": "seepage.attacks.pooled.deep_sets",
            "kl": "seepage.attacks.pooled.kl",
            "meta": "seepage.attacks.pooled.meta",
            "ratio": "seepage.attacks.pooled.ratio",
            "dominant": "seepage.attacks.pooled.update",
            "joint": "seepage.attacks.pooled.update",
            "white_box": "seepage.attacks.pooled.white_box",
        },
        baselines={
            "chance": "seepage.baselines.pooled",
            "constant_share": "seepage.baselines.pooled",
        },
        defenses={
            "rounded_answers": "seepage.defenses.answers",
            "label_only": "seepage.defenses.answers",
            "without_columns": "seepage.defenses.joint_training",
            "dp_training": "seepage.defenses.joint_training",
            "query_limit": "seepage.defenses.joint_training",
        },
        decide={"": ({"name": "rounded_answers", "digits": 1}, "label_only")},
        views={
            "PredictionView": "answers of the model",
            "ModelView": "the model itself",
            "UpdatedView": "answers before and after new data",
            "GradientsView": "gradients of another party",
        },
    )
)
