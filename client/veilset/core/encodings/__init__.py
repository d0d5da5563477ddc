"""How digests become a noisy vector: one folder for each family."""
