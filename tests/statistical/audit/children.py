"""Children forked from one state, each of which makes a release of the same content.

A program of its own: a process that has loaded gRPC, as the one that runs the tests has, must not fork. Standard input: a
mechanism, a vector and a threshold, pickled; standard output: the releases, one after the other.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from multiprocessing.connection import Connection

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from audit.release import Bits, Mechanism, release

CHILDREN = 8


def released_by_children(mechanism: Mechanism, vector: Bits, threshold: int) -> NDArray[np.uint8]:
    """Noisy copies of the whole bytes of ``vector``, one row for each child."""
    done = subprocess.run(
        [sys.executable, "-m", "audit.children"],
        input=cloudpickle.dumps((mechanism, vector, threshold)),
        stdout=subprocess.PIPE,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return np.frombuffer(done.stdout, dtype=np.uint8).reshape(CHILDREN, len(vector))


def _send(connection: Connection, mechanism: Mechanism, vector: Bits, threshold: int) -> None:
    connection.send_bytes(release(mechanism, vector, 8 * len(vector), threshold).tobytes())


def main() -> None:
    """Fork and collect; the parent has drawn once before, so that whatever it keeps of that is shared."""
    mechanism, vector, threshold = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the test above
    release(mechanism, vector, 8 * len(vector), threshold)
    context = multiprocessing.get_context("fork")
    for _ in range(CHILDREN):
        receiving, sending = context.Pipe(duplex=False)
        child = context.Process(target=_send, args=(sending, mechanism, vector, threshold))
        child.start()
        sending.close()
        sys.stdout.buffer.write(receiving.recv_bytes())
        child.join()


if __name__ == "__main__":
    main()
