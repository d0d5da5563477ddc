"""Redis or Valkey as the service writes it."""
