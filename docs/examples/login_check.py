"""An anonymous-login check as a web service: each worker follows the set and answers from its own memory.

    pip install veilset fastapi uvicorn
    export VEILSET_REDIS=redis://localhost:16379/0 VEILSET_SET=subscribers VEILSET_PUBLIC_KEY=…
    uvicorn login_check:app --app-dir docs/examples --workers 4

The address is in the body of a POST, so that no access log holds it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

import veilset

PRIOR = float(os.environ.get("LOGIN_PRIOR", "0.3"))
"""The share of subscribers among those who ask, from your own records."""

COST_STRANGER_IN, COST_SUBSCRIBER_OUT = 2.0, 1.0
MAX_AGE_SECONDS = 40 * 86_400.0


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Runs in each worker, after it has started as a process of its own: a follower cannot be shared by processes.

    The workers share the downloaded releases in the cache folder, and start from it while Redis is away.
    """
    async with veilset.aio.follow(
        os.environ["VEILSET_REDIS"],
        os.environ["VEILSET_SET"],
        public_keys=[os.environ["VEILSET_PUBLIC_KEY"]],
        cache_dir=os.environ.get("VEILSET_CACHE", "login-cache"),
        max_age_seconds=MAX_AGE_SECONDS,
    ) as follower:
        app.state.follower = follower
        yield


app = FastAPI(lifespan=lifespan)


class Visitor(BaseModel):
    """Who asks to be let in."""

    address: str


@app.post("/login")
async def login(visitor: Visitor, request: Request) -> dict[str, Any]:
    """Whether the visitor goes straight in; an answer takes microseconds and waits for nothing."""
    try:
        found = request.app.state.follower.check(
            visitor.address, PRIOR, cost_false_positive=COST_STRANGER_IN, cost_false_negative=COST_SUBSCRIBER_OUT
        )
    except veilset.errors.InvalidInput as error:
        raise HTTPException(422, error.message) from None
    except veilset.errors.StaleRelease as error:
        raise HTTPException(503, error.message) from None
    return {"straight_in": found.member, "posterior": found.posterior}


@app.get("/health")
async def health(request: Request) -> dict[str, Any]:
    """200 while the release is young enough to answer from, also while Redis is away; else 503."""
    follower = request.app.state.follower
    state = {
        "worker": os.getpid(),
        "sequence": follower.sequence,
        "age_seconds": follower.age_seconds,
        "last_error": str(follower.last_error) if follower.last_error else None,
    }
    if follower.age_seconds > MAX_AGE_SECONDS:
        raise HTTPException(503, state)
    return state
