"""Federated statistics: specs, and the audit."""

from seepage.settings.catalogue import Setting, add_setting

add_setting(
    Setting(
        "statistics",
        "federated statistics: what sums of regressions, survival models and tables tell of records",
        "seepage.settings.statistics.spec:StatisticsSpec",
        "seepage.settings.statistics.audit:StatisticsAudit.prepared",
        "seepage.settings.statistics.audit:deployment",
        order=5,
        reader_at="seepage.settings.statistics.read:READER",
        attacks={
            "counts": "seepage.attacks.statistics.counts",
            "differencing": "seepage.attacks.statistics.differencing",
            "risk_sets": "seepage.attacks.statistics.risk_sets",
        },
        baselines={
            "stereotypes": "seepage.baselines.stereotypes",
            "likeliest": "seepage.baselines.mode",
            "random": "seepage.baselines.random",
            "own_marginals": "seepage.baselines.statistics",
            "cross_tables": "seepage.baselines.statistics",
            "likeliest_table": "seepage.baselines.statistics",
        },
        defenses={
            "rounded_sums": "seepage.defenses.statistics",
            "sum_noise": "seepage.defenses.statistics",
            "one_shot": "seepage.defenses.statistics",
            "coarser_times": "seepage.defenses.statistics",
            "jump_guard": "seepage.defenses.statistics",
            "minimum_count": "seepage.defenses.statistics",
            "rounded_counts": "seepage.defenses.statistics",
        },
        decide={
            "glm": ({"name": "rounded_sums", "digits": 1}, "one_shot"),
            "cox": ("coarser_times", "jump_guard"),
            "table": ("minimum_count", "rounded_counts"),
        },
        views={
            "NewtonView": "sums of Newton steps",
            "RiskSetView": "risk-set sums",
            "TablesView": "tables of two runs",
        },
    )
)
