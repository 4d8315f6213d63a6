"""Federated statistics: specs, and the audit."""
