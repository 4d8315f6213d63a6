"""TabLeak (Vero et al., ICML 2023): ablations, its form of GradInversion, its convolutional network, its tables."""
