"""The service as a client sees it: channel, calls, uploads, errors on the wire."""
