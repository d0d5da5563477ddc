"""How long a test waits for what has to come."""

from __future__ import annotations

SECONDS = 120.0
"""Far longer than anything here takes, and less than pytest lets a test take: a busy machine is no fault."""
