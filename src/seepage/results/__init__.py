"""Results of an audit: rows, checks, verdict, gate."""
