"""What an audit found: rows, checks, verdict, gate."""
