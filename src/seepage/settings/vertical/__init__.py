"""Vertical learning: specs, and the audit."""
