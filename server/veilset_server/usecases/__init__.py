"""What the service does: sets, uploads, publishing, delivery, rollback."""
