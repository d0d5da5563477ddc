"""Structured logs on standard error, one JSON object a line. No caller may pass an element, a digest or a size."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logs(level: str = "info") -> None:
    """Set up structlog for the process. Exceptions are logged by type and place only, never by text."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp"),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
