"""Split learning: specs, and audits of the cut and of whole clients."""
