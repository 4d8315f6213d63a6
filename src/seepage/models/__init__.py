"""Networks that parties train together; importing this package registers them."""

from seepage.models import mlp
from seepage.models.model import Head, Model, seeded

__all__ = ["Head", "Model", "mlp", "seeded"]
