"""Attacks on gradients and updates of horizontal federated learning."""
