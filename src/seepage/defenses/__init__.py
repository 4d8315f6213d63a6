"""What a client does to its update before it is sent; importing this package registers the defenses."""

from seepage.defenses import clipping, gaussian_noise, none, sign, top_k
from seepage.defenses.defense import Defense

__all__ = ["Defense", "clipping", "gaussian_noise", "none", "sign", "top_k"]
