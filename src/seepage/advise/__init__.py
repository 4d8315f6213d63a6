"""What to change so that a deployment leaks less: a search for the cheapest configuration that passes a gate."""
