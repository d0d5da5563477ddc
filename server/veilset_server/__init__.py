"""The veilset service. Composition root: `veilset_server.app`."""
