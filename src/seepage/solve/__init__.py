"""Whole numbers with known sums: what bounds, elimination and searches say of them, and which are the likeliest."""
