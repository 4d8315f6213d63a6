"""Federated trees: specs, and the audit."""

from seepage.settings.catalogue import Setting, add_setting

add_setting(
    Setting(
        "trees",
        "federated trees: what histograms and tree files tell of the records that they were grown on",
        "seepage.settings.trees.spec:TreesSpec",
        "seepage.settings.trees.audit:prepared",
        "seepage.settings.trees.audit:deployment",
        order=4,
        reader_at="seepage.settings.trees.read:READER",
        attacks={
            "anchor": "seepage.attacks.trees.anchor",
            "bin_sums": "seepage.attacks.trees.bin_sums",
            "hessians": "seepage.attacks.trees.files",
            "leaf_counts": "seepage.attacks.trees.files",
            "node_clusters": "seepage.attacks.labels.nodes",
            "node_heads": "seepage.attacks.labels.nodes",
            "thresholds": "seepage.attacks.trees.files",
            "timberstrike": "seepage.attacks.trees.timberstrike",
        },
        baselines={
            "stereotypes": "seepage.baselines.stereotypes",
            "likeliest": "seepage.baselines.mode",
            "mode": "seepage.baselines.mode",
            "random": "seepage.baselines.random",
            "own_marginals": "seepage.baselines.trees",
            "own_columns": "seepage.baselines.trees",
            "constant": "seepage.baselines.vertical",
            "median": "seepage.baselines.vertical",
            "label_mode": "seepage.baselines.labels",
            "label_columns": "seepage.baselines.labels",
        },
        defenses={
            "strip_fields": "seepage.defenses.trees",
            "min_child_weight": "seepage.defenses.trees",
            "max_bin": "seepage.defenses.trees",
            "shared_cuts": "seepage.defenses.trees",
            "histogram_noise": "seepage.defenses.trees",
            "first_trees": "seepage.defenses.trees",
            "shuffled_bins": "seepage.defenses.trees",
        },
        decide={
            "histogram": ("max_bin", "shared_cuts"),
            "secureboost": ("first_trees", "max_bin"),
            "": ("strip_fields", "max_bin"),
        },
        views={
            "HistogramsView": "sums of derivatives",
            "TreeFilesView": "tree files",
            "ColumnSumsView": "decrypted sums over another party's columns",
            "NodesView": "the rows of each node",
        },
    )
)
