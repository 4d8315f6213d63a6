"""Attacks on captured messages: what reads them, what is run on them, and what was found."""
