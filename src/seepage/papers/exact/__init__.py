"""EXACT (Qiu et al., 2024): its tables of split learning."""
