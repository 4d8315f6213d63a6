"""Federated trees: specs, and the audit."""
