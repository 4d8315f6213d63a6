"""Running an audit: plan, workers, store, provenance."""
