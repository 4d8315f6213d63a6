"""Attacks on what clients of federated boosted trees send: histograms of derivatives, and tree files."""
