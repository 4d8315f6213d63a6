"""Audit documents: YAML with line numbers, sweeps, starter documents."""
