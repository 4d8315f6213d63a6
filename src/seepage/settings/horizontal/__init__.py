"""Horizontal learning: specs, tables and networks, and the audit."""
