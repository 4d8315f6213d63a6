"""Attacks on gradients and updates of horizontal federated learning."""

from seepage.attacks.gradient import dlg, grad_inversion, inverting_gradients, tableak

__all__ = ["dlg", "grad_inversion", "inverting_gradients", "tableak"]
