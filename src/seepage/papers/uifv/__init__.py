"""UIFV (Yang et al., 2024): attacks that it compares itself with, and its tables and images of vertical learning."""
