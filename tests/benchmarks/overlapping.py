"""An overlap estimated from a release, per element, against exact private set intersection."""

from __future__ import annotations

from benchmarks.corpus import addresses
from benchmarks.rows import Family, Measured, Row, Run, at_least
from benchmarks.stopwatch import take_turns
from harness.releases import release_view
from harness.shapes import FilterParameters
from veilset.core import compiled

_ELEMENTS = 1_000_000
_PEER_ELEMENTS = 2_000


def measure(run: Run) -> Measured:
    """Theirs is the whole exchange of two lists of the same size: the server's set-up, the request, the answer, the size."""
    import private_set_intersection.python as psi

    compiled.load()
    count, peer_count = run.size(_ELEMENTS), run.size(_PEER_ELEMENTS)
    everything = addresses(3 * count // 2)
    view = release_view(everything[:count], FilterParameters(39 * count, 1), 3.0)
    own = everything[count // 2 :]
    theirs, mine = everything[:peer_count], everything[peer_count // 2 : peer_count // 2 + peer_count]

    def exchange() -> None:
        client, server = psi.client.CreateWithNewKey(False), psi.server.CreateWithNewKey(False)
        setup = server.CreateSetupMessage(1e-6, len(mine), theirs, psi.DataStructure.RAW)
        answer = server.ProcessRequest(client.CreateRequest(mine))
        if client.GetIntersectionSize(setup, answer) != peer_count - peer_count // 2:
            raise AssertionError("openmined-psi found another intersection than there is")

    timings = take_turns({"ours": lambda: view.overlap(own), "theirs": exchange}, run.repeats)
    weight = len(own) / peer_count
    each = (1e6 * timings.median("ours") / len(own), 1e6 * timings.median("theirs") / peer_count)
    note = f"{each[0]:.3g} µs an element; theirs {each[1]:.3g} µs"
    return {"overlap/psi": timings.times_faster("ours", "theirs", weight, note)}


FAMILY = Family(
    "overlap",
    (
        Row(
            "overlap/psi",
            "overlap estimate of 10^6 own elements, per element",
            "openmined-psi, server set-up and client (exact)",
            at_least(300),
        ),
    ),
    measure,
    {"openmined-psi": "private_set_intersection.python"},
)
