"""The page of a release stands by itself, says what the JSON says, and lets no text of the release become markup."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import veilset
from harness.programs import Finished
from harness.releases import SIGNER, release_bytes, release_view
from harness.shapes import FilterParameters
from veilset._reader.fetching import CheckedRelease
from veilset._reader.view import View, make_view
from veilset._report.chart import Curve, unit_chart
from veilset._report.facts import describe_release
from veilset._report.page import release_page
from veilset.core.elements.hashing import key_check
from veilset.core.encodings.bloom.parameters import BloomParameters
from veilset.core.encodings.decoder import operating_points, posterior_rows
from veilset.core.params import HashScheme
from veilset.core.release.header import NoisyCount

KEY = bytes(range(32))
MEMBERS = [f"member-{number}" for number in range(3000)]
SHAPE = FilterParameters(1 << 15, 4, seed=11)
VIEW = release_view(MEMBERS, SHAPE, 6.0)
KEYED = veilset.open(
    release_bytes(MEMBERS, replace(SHAPE, scheme=HashScheme.BLAKE2B, key_check=key_check(KEY)), 6.0, key=KEY),
    public_keys=[SIGNER.public_key().public_bytes_raw()],
    key=KEY,
)
GOLDEN = veilset.open(Path(__file__).parents[1] / "vectors" / "release-keyed.veilset")
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """What is in a page: tags with their attributes, values by their path, and text; every tag has to be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.values: list[tuple[str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.tags.append((tag, attributes))
        if tag == "data":
            self.values.append((attributes["data-path"], attributes["value"]))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.text += data


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain value of a JSON record with its path."""
    if isinstance(value, dict | list):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, f"{path}.{name}".lstrip("."))
    else:
        yield path, value


def as_told(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("view", [VIEW, KEYED, GOLDEN], ids=["plain", "keyed", "golden"])
@pytest.mark.parametrize("pinned", [True, False])
def test_the_page_says_what_the_json_says(view: View, pinned: bool) -> None:
    """Each value on the page is that of the JSON; and all of the JSON is there, the statement in words."""
    facts = json.loads(json.dumps(describe_release(view, pinned=pinned)))
    page = Page(release_page(view, pinned=pinned))
    told = dict(leaves(facts))
    assert page.values
    for path, value in page.values:
        assert as_told(told[path]) == value, path
    apart = ("statement", "size.confidence", "signature.trusted")
    expected = {path for path in told if not path.startswith(apart)} - {"count"}
    absent = {path for path, value in told.items() if value is None}
    assert expected - {path for path, _ in page.values} <= absent
    for line in str(view.statement).splitlines():
        assert line in page.text
    assert ("a key you trust" in page.text) == pinned
    assert ("no one vouched for" in page.text) == (not pinned)


@pytest.mark.parametrize("view", [VIEW, KEYED, GOLDEN], ids=["plain", "keyed", "golden"])
def test_the_page_stands_by_itself(view: View) -> None:
    """No address, no source, no script, no handler; and a policy under which a browser would load nothing."""
    text = release_page(view, pinned=False)
    page = Page(text)
    assert not re.search(r"https?:|//|src\s*=|href\s*=|url\(|@import|javascript:", text, re.IGNORECASE)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "image",
        "use",
        "foreignobject",
        "form",
        "a",
        "base",
    }
    names = {name for _, attributes in page.tags for name in attributes}
    assert not [name for name in names if name.startswith("on") or name in ("style", "xlink:href", "srcset")]
    policy = [attributes["content"] for tag, attributes in page.tags if "http-equiv" in attributes]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert "prefers-color-scheme: dark" in text
    assert len(text) < 200_000
    assert "$" not in text


def test_text_stays_text() -> None:
    """Names cannot hold markup, but the page does not lean on that."""
    evil = "<script>alert(1)</script>&\"'$name"
    header = replace(VIEW.header, set_name=evil)
    text = release_page(EvilView(VIEW, header), pinned=False)
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;&#x27;$name" in text
    assert evil in Page(text).text
    assert "<b>" not in unit_chart("<b>", "<b>", "<b>", [Curve("<b>", '"><b>', [(0.0, 1.0)], dots=True)])


class EvilView(View):
    """A view whose header holds what no decoder would let pass."""

    def __init__(self, view: View, header: Any) -> None:
        super().__init__((replace(view.parts[0], header=header),), view.decoder, None)

    @property
    def statement(self) -> Any:
        return VIEW.statement


def test_the_state_of_key_and_signature_is_told() -> None:
    """Trusted or not, secret there or not."""
    assert "your secret fits" in release_page(KEYED, pinned=True, has_key=True)
    assert "answers need a secret" in release_page(KEYED, pinned=True)
    assert KEY.hex() not in release_page(KEYED, pinned=True, has_key=True)
    facts = describe_release(GOLDEN, pinned=False)
    assert len(facts["signature"]["keys"]) == 2
    assert facts["signature"]["trusted"] is False


def test_a_release_that_says_nothing_has_a_page() -> None:
    """A saturated vector, a coin's noise: no division by zero, no infinite number in the JSON."""
    full = np.full(VIEW.header.vector_bytes, 255, dtype=np.uint8)
    for vector, flips in ((full, VIEW.header.encoding.fields()["flip_threshold"]), (VIEW.vector, 1 << 63)):
        view = changed(vector, flips)
        facts = describe_release(view, pinned=False)
        json.dumps(facts, allow_nan=False)
        text = release_page(view, pinned=False)
        assert ("answers no to every question" in text) == (view.decoder.true_positive_rate == 0.0)
        Page(text)


def changed(vector: NDArray[np.uint8], flips: int) -> View:
    assert isinstance(VIEW.header.encoding, BloomParameters)
    header = replace(VIEW.header, encoding=replace(VIEW.header.encoding, flip_threshold=flips))
    return make_view([CheckedRelease(header, VIEW.manifest, vector)], None)


def test_the_curves_are_the_decoders() -> None:
    """Their points hold the test in use; a prior of 0 or 1 stays; a yes never lowers it, a no never raises it."""
    decoder = VIEW.decoder
    points = operating_points(decoder)
    assert [point.accepts_from for point in points] == ["never", "4 of 4", "3 of 4", "2 of 4", "1 of 4", "0 of 4"]
    assert (points[0].true_positive_rate, points[-1].false_positive_rate) == pytest.approx((0.0, 1.0))
    rates = (decoder.true_positive_rate, decoder.false_positive_rate)
    assert any(
        (point.true_positive_rate, point.false_positive_rate) == pytest.approx(rates, abs=1e-3) for point in points
    )
    for row in posterior_rows(decoder, [0.0, 0.01, 0.5, 1.0]):
        assert row.smallest <= row.after_no <= row.prior <= row.after_yes <= row.largest
    (half,) = posterior_rows(decoder, [0.5])
    expected = decoder.true_positive_rate / (decoder.true_positive_rate + decoder.false_positive_rate)
    assert half.after_yes == pytest.approx(expected)


def test_the_limit_is_drawn_upon_the_curve_that_touches_it() -> None:
    """A thinner line of dashes, over every test of a release and over its answers."""
    style = release_page(VIEW, pinned=False)
    width = float(re.findall(r"curve\.series-1, \.curve\.series-2 \{ stroke-width: (\d+)", style)[0])
    assert width > 2 * float(re.findall(r"\.curve \{ fill: none; stroke-width: ([\d.]+)", style)[0]) > 0
    for chart in re.findall(r"<svg.*?</svg>", style, re.DOTALL):
        drawn = re.findall(r'class="curve ([a-z0-9-]+)"', chart)
        assert drawn.index("limit") > max(place for place, name in enumerate(drawn) if name.startswith("series"))


def test_a_bought_count_is_on_the_page() -> None:
    """With the law of its noise."""
    header = replace(VIEW.header, count=NoisyCount(10_000, "laplace", 4.5, 1, 1.0, 0.0))
    text = release_page(View((replace(VIEW.parts[0], header=header),), VIEW.decoder, None), pinned=False)
    assert ("count.value", "10000") in Page(text).values
    assert "from its <data" in text


def test_the_command_writes_the_page(veilset_here: Callable[..., Finished], tmp_path: Path) -> None:
    """Beside its JSON, and in place of its text; a file that cannot be written is named."""
    release, page = Path(__file__).parents[1] / "vectors" / "release-plain.veilset", tmp_path / "page.html"
    command = ("inspect", "golden-plain", "--release", release, "--html")
    told = dict(leaves(veilset_here(*command, page, "--json").json()))
    values = Page(page.read_text(encoding="utf-8")).values
    assert all(as_told(told[path]) == value for path, value in values)
    assert veilset_here(*command, page).out == f"wrote {page}\n"
    text = veilset_here("inspect", "golden-plain", "--release", release).out
    for name in ("encoding", "advantage_limit", "size", "signature", "key_check", "prior", "yes from"):
        assert name in text
    assert "differentially private" in text
    assert veilset_here(*command, tmp_path / "nowhere" / "page.html").complaint().startswith(str(tmp_path / "nowhere"))
