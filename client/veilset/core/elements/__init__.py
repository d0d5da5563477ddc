"""From an element to its digest: normalization, hash schemes, secrets."""
