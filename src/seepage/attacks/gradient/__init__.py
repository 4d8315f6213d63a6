"""Attacks on gradients and updates of horizontal federated learning."""

from seepage.attacks.gradient import dlg, inverting_gradients, tableak

__all__ = ["dlg", "inverting_gradients", "tableak"]
