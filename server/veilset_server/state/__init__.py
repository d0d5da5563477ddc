"""The state folder: ledger, spools, artefacts, keys, tokens, anchor."""
