"""Dataset properties (Zhang, Tople and Ohrimenko, 2021): a rival that reads gradients, and tables, texts and graphs."""
