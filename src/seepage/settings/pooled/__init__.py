"""Pooled learning: specs, parties and their models, and the audit."""
