"""Checks of an audit's own results: a code, a severity and an explanation in ``docs/checks.md`` each."""
