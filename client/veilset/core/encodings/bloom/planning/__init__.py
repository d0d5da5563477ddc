"""The search for the best filter: request, pricing, search, refusals."""
