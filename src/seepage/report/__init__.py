"""What an audit found, for people."""
