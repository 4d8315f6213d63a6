"""Split learning: specs, and audits of the cut and of whole clients."""

from seepage.settings.catalogue import Setting, add_setting

add_setting(
    Setting(
        "split",
        "split learning: what the server reads of the client's columns and labels",
        "seepage.settings.split.spec:SplitSpec",
        "seepage.settings.split.audit:prepared",
        "seepage.settings.split.audit:deployment",
        order=1,
        reader_at="seepage.settings.split.read:READER",
        attacks={
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
        baselines={
            "marginals": "seepage.baselines.split",
            "knn": "seepage.baselines.split",
            "imputer": "seepage.baselines.imputer",
            "constant": "seepage.baselines.vertical",
            "median": "seepage.baselines.vertical",
            "label_mode": "seepage.baselines.labels",
        },
        defenses={
            "cut_noise": "seepage.defenses.cut_noise",
            "feature_noise": "seepage.defenses.feature_noise",
            "label_flip": "seepage.defenses.label_flip",
            "marvell": "seepage.defenses.marvell",
            "max_norm": "seepage.defenses.returned",
            "weight_noise": "seepage.defenses.weight_noise",
        },
        decide={"": ({"name": "cut_noise", "noise_multiplier": 1.0}, {"name": "label_flip", "probability": 0.1})},
        views={
            "CutView": "activations and the gradients that come back",
            "ReturnedView": "what a party sent and what came back of it",
            "LogitsView": "logits that are added up",
            "BatchView": "gradients of whole batches",
        },
    )
)
