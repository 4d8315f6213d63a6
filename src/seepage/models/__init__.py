"""Networks that parties train together; importing this package registers them."""

from seepage.models import cnn, gaussian, imprint, loki, mlp, resnet
from seepage.models.model import Head, Model, seeded

__all__ = ["Head", "Model", "cnn", "gaussian", "imprint", "loki", "mlp", "resnet", "seeded"]
