"""Published tables as data, run by the same runner as any audit."""
