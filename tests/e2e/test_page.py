"""The web page that `veilset page` writes, in a real Chromium, from a plain file server."""

from __future__ import annotations

import csv
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import veilset
from harness.patience import SECONDS
from harness.programs import Finished
from harness.releases import PUBLIC_KEY, generation, linear_parameters, release_bytes
from harness.shapes import FilterParameters
from veilset._report.site import write_site
from veilset.core.elements.hashing import key_check
from veilset.core.params import HashScheme, Normalization

KEY = b"a secret of sixteen bytes or more"
NAMES = ["änne", "BOB", "zoë", "jürgen", "李雷", "ölaf.o'neil", "eve+tag"]
DOMAINS = ["example.com", "Bücher.example", "例え.jp", "EXAMPLE.org", "ἑλλάς.gr"]
PEOPLE = [f"{NAMES[i % 7]}{i}@{DOMAINS[i % 5]}" for i in range(200)]
OWN_FILES = {"/", "/page.css", "/page.js", "/reader.js", "/releases.json"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's chromium without a window."""
    program = shutil.which("chromium")
    if program is None:
        reason = "chromium is not installed; apt-get install chromium"
        pytest.fail(reason) if os.environ.get("VEILSET_TEST_REQUIRE_CHROMIUM") else pytest.skip(reason)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program)
        yield opened
        opened.close()


class Site:
    """A folder on a plain file server, and what was asked of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        site = self

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - http.server's name
                site.asked.append(self.path)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def write(self, data: bytes, public_keys: Sequence[str] = (PUBLIC_KEY.hex(),)) -> list[str]:
        """The page of a release file."""
        return write_site(veilset.open(data), self.folder, public_keys)

    def end(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """One for this test."""
    (tmp_path / "site").mkdir()
    made = Site(tmp_path / "site")
    yield made
    made.end()


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Callable[..., Page]]:
    """Open the page; all that it asks for, refused requests too, has to be of its own server, and no script may fail."""
    contexts = []
    requested: list[str] = []
    failed: list[str] = []

    def open_page(**options: Any) -> Page:
        contexts.append(context := browser.new_context(**options))
        context.set_default_timeout(1000 * SECONDS)
        context.on("request", lambda request: requested.append(request.url))
        context.on("weberror", lambda error: failed.append(str(error.error)))
        page = context.new_page()
        page.goto(site.url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert failed == []
    assert [url for url in requested if not url.startswith(site.url)] == []


def linear_release(members: Sequence[str], **more: Any) -> bytes:
    """A linear release of e-mail addresses."""
    encoding = linear_parameters(len(members), 4.0)
    shape = more.pop("shape", FilterParameters(8, 1, seed=3))
    return release_bytes(members, shape, 4.0, normalization=Normalization.EMAIL, encoding=encoding, **more)


def ask(page: Page, elements: Sequence[str]) -> None:
    expect(page.locator("#go")).to_be_enabled()
    page.fill("#list", "\n".join(elements))
    page.click("#go")
    expect(page.locator("#summary")).to_contain_text(f"of {len(elements):,} are taken")


def saved(page: Page) -> list[dict[str, str]]:
    """The rows of the CSV file that the page gives."""
    with page.expect_download() as found:
        page.click("#save")
    with found.value.path().open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def releases() -> dict[str, tuple[bytes, bytes | None, list[str]]]:
    """A file of each kind, the secret, and what is asked."""
    members, shape = PEOPLE[::2], FilterParameters(4_003, 3, seed=9)
    keyed = FilterParameters(4_003, 3, HashScheme.BLAKE2B, 4_000_000_000, key_check(KEY))
    texts = [f"user{number}" for number in range(400)]
    return {
        "bloom": (release_bytes(members, shape, 4.0, normalization=Normalization.EMAIL), None, PEOPLE),
        "linear and keyed": (linear_release(members, shape=keyed, key=KEY), KEY, PEOPLE),
        "generation": (b"".join(generation("linear", texts[:300], crowded=2)), None, texts[100:]),
    }


@pytest.mark.parametrize("name", ["bloom", "linear and keyed", "generation"])
def test_answers_are_those_of_python(site: Site, visit: Callable[..., Page], tmp_path: Path, name: str) -> None:
    """Of 200 elements and one that is none; the rates too; and nothing is asked for but the page's own files."""
    data, key, texts = releases()[name]
    site.write(data)
    view = veilset.open(data, key=key)
    page = visit()
    if key is not None:
        expect(page.locator("#rates")).to_contain_text("%")
        expect(page.locator("#go")).to_be_disabled()
        for content, outcome in ((b"another secret of sixteen bytes", "is not that of this release"), (KEY, "")):
            (tmp_path / "own.secret").write_bytes(content + b"\n")
            page.set_input_files("#secret-file", tmp_path / "own.secret")
            expect(page.locator("#notice")).to_contain_text(outcome)
        expect(page.locator("#secret-state")).to_have_text("The secret fits.")
    crowded = "Increment 2 holds more than it was made for" if len(view.parts) > 1 else ""
    assert view.decoder.saturated_parts == ((2,) if crowded else ())
    expect(page.locator("#notice")).to_contain_text(crowded)
    page.fill("#prior", "5")
    invalid = ["not an address"] if view.header.normalization is Normalization.EMAIL else []
    ask(page, texts + invalid)
    rows = saved(page)
    assert [row["element"] for row in rows] == texts + invalid
    expected = ["yes" if member else "no" for member in view.contains_many(texts)]
    assert [row["answer"] for row in rows] == expected + ["invalid"] * len(invalid)
    probabilities = [float(row["probability"]) for row in rows[: len(texts)]]
    np.testing.assert_allclose(probabilities, view.posteriors(texts, 0.05), rtol=1e-9)
    shown = page.locator("#rows tr").all_inner_texts()
    assert [line.split("\t")[:2] for line in shown] == [[row["element"], row["answer"]] for row in rows[:200]]
    rates = view.decoder.true_positive_rate, view.decoder.false_positive_rate
    drawn = [float(text.removesuffix("%")) for text in page.locator("#rates .bar span:last-child").all_inner_texts()]
    assert drawn == pytest.approx([100 * rate for rate in rates], abs=0.00501)
    assert page.locator("#promise p").all_inner_texts() == str(view.statement).splitlines()
    for text in page.locator("#guesses .bar span:last-child").all_inner_texts():
        assert f"at most {text} " in str(view.statement)
    parts = {f"/releases/{path.name}" for path in (site.folder / "releases").iterdir()}
    assert set(site.asked) == OWN_FILES | parts
    assert [site.asked.count(path) for path in parts] == [1] * len(parts)
    assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]


def test_the_policy_lets_nothing_else_be_loaded(site: Site, browser: Browser) -> None:
    """Not even by the page's own scripts: no other server, no inline script, style or form."""
    site.write(linear_release(PEOPLE))
    (site.folder / "dot.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>')
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(site.url)
        expect(page.locator("#go")).to_be_enabled()
        other = f"http://localhost:{site.server.server_port}/"
        asked = len(site.asked)
        outcomes = page.evaluate(
            """async other => {
                const made = (tag, changes) => new Promise(done => {
                    const element = Object.assign(document.createElement(tag), changes);
                    [element.onload, element.onerror] = [() => done("loaded"), () => done("refused")];
                    document.body.append(element);
                });
                navigator.sendBeacon(other);
                document.body.append(Object.assign(document.createElement("script"), {textContent: "window.broken = 1"}));
                document.body.append(Object.assign(document.createElement("style"), {textContent: "h1 { display: none }"}));
                return Promise.all([
                    fetch(other, {mode: "no-cors"}).then(() => "loaded", () => "refused"),
                    made("script", {src: other + "page.js"}),
                    made("img", {src: other + "dot.svg"}),
                ]);
            }""",
            other,
        )
        assert outcomes == ["refused"] * 3
        assert page.evaluate("window.broken") is None
        assert page.locator("h1").is_visible()
        assert len(site.asked) == asked


@pytest.mark.parametrize("fault", ["signature", "chunk", "cut", "missing", "another set"])
def test_a_release_that_fails_a_check_gives_no_answers(site: Site, visit: Callable[..., Page], fault: str) -> None:
    """And the page says what is wrong."""
    keys = ["11" * 32] if fault == "signature" else [PUBLIC_KEY.hex()]
    site.write(linear_release(PEOPLE), keys)
    (path,) = (site.folder / "releases").iterdir()
    data = bytearray(path.read_bytes())
    if fault == "chunk":
        data[-9] ^= 4
    elif fault == "another set":
        data = bytearray(linear_release(PEOPLE, name="others"))
    path.write_bytes(data[:-1] if fault == "cut" else data)
    if fault == "missing":
        path.unlink()
    page = visit()
    told = {
        "signature": "no valid signature by a trusted key",
        "chunk": "chunk 0 does not match its hash",
        "cut": "the vector has",
        "missing": "the server answers 404",
        "another set": "is not of the set members",
    }
    expect(page.locator("#notice")).to_contain_text(told[fault])
    expect(page.locator("#notice")).to_contain_text("There are no answers without it.")
    assert page.locator("#go").is_disabled()
    for part in ("#worth", "#promised", "#answers"):
        assert page.locator(part).is_hidden()


def test_increments_are_picked_up(site: Site, visit: Callable[..., Page]) -> None:
    """By an open page, which loads the new parts alone, asks again, and keeps what it has where a part is damaged."""
    texts = [f"user{number}" for number in range(400)]
    parts = generation("linear", texts)
    site.write(b"".join(parts[:2]))
    page = visit()
    page.clock.install()
    page.reload()
    ask(page, texts)
    written = site.write(b"".join(parts))
    assert [file.partition("/")[0] for file in written] == ["releases", "releases", "releases.json"]
    newest = site.folder / written[1]
    newest.write_bytes(newest.read_bytes()[:-1])
    os.utime(newest, (1e9, 1e9))  # the server says in whole seconds how old it is
    site.asked.clear()
    page.click("#look")
    expect(page.locator("#notice")).to_contain_text("Answers are still those of release 2.")
    ask(page, texts)
    assert answers(page) == veilset.open(b"".join(parts[:2])).contains_many(texts).tolist()
    assert site.write(b"".join(parts)) == [written[1]]
    page.click("#look")
    expect(page.locator("#release")).to_contain_text("Release 4")
    expect(page.locator("#notice")).to_be_hidden()
    expect(page.locator("#files tr")).to_have_count(4)
    expect(page.locator("#progress")).to_be_hidden()
    assert answers(page) == veilset.open(b"".join(parts)).contains_many(texts).tolist()
    again = [f"/{file}" for file in written]
    assert site.asked == [again[2], *again[:2], again[2], *again[:2]]
    page.click("#look")
    expect(page.locator("#release")).to_contain_text("the newest there is")
    assert site.write(linear_release(PEOPLE, sequence=5))[0].startswith("releases/5-")
    assert len(list((site.folder / "releases").iterdir())) == 5  # those before stay, for pages that are loading them
    page.clock.fast_forward("05:01")
    expect(page.locator("#release")).to_contain_text("Release 5")
    (foreign := site.folder / "releases" / "mine.veilset").write_bytes(b"mine")
    site.write(linear_release(PEOPLE, sequence=6))
    assert len(list((site.folder / "releases").iterdir())) == 3
    assert foreign.read_bytes() == b"mine"
    site.write(linear_release(PEOPLE, sequence=3))
    page.click("#look")
    expect(page.locator("#notice")).to_contain_text("is older than 5")


def answers(page: Page) -> list[bool]:
    return [row["answer"] == "yes" for row in saved(page)]


def test_files_are_read(site: Site, visit: Callable[..., Page], tmp_path: Path) -> None:
    """Lines with a byte order mark, CSV with quotes and a column to choose, what is dropped; else a sentence says why not."""
    site.write(linear_release(PEOPLE))
    page = visit()
    expect(page.locator("#go")).to_be_enabled()
    lines, table, wrong, latin = (tmp_path / name for name in ("list.txt", "table.csv", "wrong.csv", "latin.txt"))
    lines.write_bytes("\ufeffänne0@example.com\r\n\r\nBOB1@bücher.example".encode())
    table.write_text(
        'name;mail\n"A; ""x"""\n'.replace('"\n', '";zoë2@例え.jp\n') + "\n;eve@example.com\nB;\n", encoding="utf-8"
    )
    wrong.write_text('a,b\n1,2"3\n')
    latin.write_bytes("änne".encode("latin-1"))
    page.set_input_files("#file", lines)
    page.click("#go")
    expect(page.locator("#rows td:first-child")).to_have_text(["änne0@example.com", "BOB1@bücher.example"])
    page.set_input_files("#file", table)
    expect(page.locator("#column option")).to_have_text(["name", "mail"])
    page.select_option("#column", label="name")
    page.click("#go")
    expect(page.locator("#rows td:first-child")).to_have_text(['A; "x"', "B"])
    page.select_option("#column", label="mail")
    page.click("#go")
    expect(page.locator("#rows td:first-child")).to_have_text(["zoë2@例え.jp", "eve@example.com"])
    for path, told in ((wrong, "wrong.csv cannot be read: line 2 has a quote"), (latin, "it is not UTF-8 text")):
        page.set_input_files("#file", path)
        expect(page.locator("#notice")).to_contain_text(told)
    page.evaluate(
        """() => {
            const data = new DataTransfer();
            data.items.add(new File(["zoë2@例え.jp\\n"], "dropped.txt"));
            document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
        }"""
    )
    expect(page.locator("#list")).to_have_attribute("placeholder", "dropped.txt")
    page.click("#go")
    expect(page.locator("#rows td:first-child")).to_have_text(["zoë2@例え.jp"])
    page.click("#no-file")
    page.click("#go")
    expect(page.locator("#notice")).to_contain_text("There is nothing to ask about")


def test_a_long_list_does_not_stop_the_page(site: Site, visit: Callable[..., Page]) -> None:
    """What is asked while 10^5 elements are on their way is answered in their place; they alone are answered in full."""
    site.write(linear_release(PEOPLE))
    page = visit()
    expect(page.locator("#go")).to_be_enabled()
    many = "".join(f"user{number}@example.com\n" for number in range(100_000))
    page.set_input_files("#file", {"name": "many.txt", "mimeType": "text/plain", "buffer": many.encode()})
    expect(page.locator("#no-file")).to_be_visible()
    seen = page.evaluate(
        """() => new Promise(done => {
            const [go, progress, list] = ["go", "progress", "list"].map(id => document.getElementById(id));
            go.click();
            setTimeout(() => {
                const halfway = progress.value;
                list.value = "eve@example.com";
                list.dispatchEvent(new Event("input"));
                go.click();
                setTimeout(() => done([halfway, document.getElementById("summary").textContent]), 300);
            });
        })"""
    )
    assert 0 < seen[0] < 1
    assert "of 1 are taken" in seen[1]
    page.set_input_files("#file", {"name": "many.txt", "mimeType": "text/plain", "buffer": many.encode()})
    expect(page.locator("#no-file")).to_be_visible()
    page.click("#go")
    expect(page.locator("#summary")).to_contain_text("of 100,000 are taken")
    assert page.locator("#rows tr").count() == 200
    page.click("#more")
    assert page.locator("#rows tr").count() == 400
    page.select_option("#shown", "yes")
    assert set(page.locator("#rows tr td:nth-child(2)").all_inner_texts()) == {"yes"}


def test_it_works_by_keyboard_alone(site: Site, visit: Callable[..., Page]) -> None:
    """Every control is reached by the tabulator, has a name, and shows that it has the focus."""
    site.write(linear_release(PEOPLE))
    page = visit()
    expect(page.locator("#go")).to_be_enabled()
    reached = []

    def tab_to(name: str) -> None:
        for _ in range(20):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id"))
            if reached[-1] == name:
                assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
                return
        raise AssertionError(f"{name} is not reached: {reached}")

    tab_to("list")
    page.keyboard.type("änne0@example.com\nnobody@example.com")
    tab_to("prior")
    page.keyboard.press("ArrowUp")
    assert page.input_value("#prior") == "51"
    tab_to("go")
    page.keyboard.press("Enter")
    expect(page.locator("#summary")).to_contain_text("of 2 are taken")
    tab_to("save")
    with page.expect_download():
        page.keyboard.press("Space")
    tab_to("look")
    names = "label:has-text('{0}'), [for={0}]"
    for control in page.locator("textarea, select, input, button").all():
        own = control.get_attribute("id")
        assert control.inner_text() or page.locator(names.format(own)).count() or own == "header"
    roles = {spot: page.locator(f"#{spot}").get_attribute("role") for spot in ("notice", "release", "summary")}
    assert roles == {"notice": "alert", "release": "status", "summary": "status"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_on_a_phone_and_in_the_dark(site: Site, visit: Callable[..., Page], scheme: str) -> None:
    """Nothing is wider than 360 pixels, and every text has a contrast of 4.5 to what is behind it, at least."""
    site.write(linear_release(PEOPLE))
    page = visit(viewport={"width": 360, "height": 740}, color_scheme=scheme)
    ask(page, [PEOPLE[0], "a-very-long-address-" * 6 + "@example.com", "not an address"])
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    colours = page.evaluate(
        """() => {
            const behind = node => {
                const own = getComputedStyle(node).backgroundColor;
                return own === "rgba(0, 0, 0, 0)" ? behind(node.parentElement) : own;
            };
            const texts = [...document.querySelectorAll("body *")].filter(node => node.checkVisibility() && node.innerText);
            return texts.map(node => [getComputedStyle(node).color, behind(node), node.id || node.tagName]);
        }"""
    )
    assert len(colours) > 50
    for ink, paper, where in colours:
        assert contrast(ink, paper) >= 4.5, (where, ink, paper)
    paper = colours[0][1]
    assert (luminance(paper) < 0.1) == (scheme == "dark")


def luminance(colour: str) -> float:
    """Of ``rgb(…)``, by WCAG 2."""
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_command_writes_the_folder(
    veilset_here: Callable[..., Finished], site: Site, visit: Callable[..., Page], tmp_path: Path
) -> None:
    """Once; what stands there already is left alone, and other pages too. Without a key the page says so."""
    (release := tmp_path / "members.veilset").write_bytes(linear_release(PEOPLE))
    command = ("page", "members", "--release", release, "--out")
    first = veilset_here(*command, site.folder, "--public-key", PUBLIC_KEY.hex(), "--json").json()
    assert (first["sequence"], first["written"][-1], len(first["written"])) == (1, "releases.json", 7)
    assert veilset_here(*command, site.folder, "--public-key", PUBLIC_KEY.hex(), "--json").json()["written"] == []
    expect(visit().locator("#states")).to_have_text("signed by a key that this page was made to trust")
    unpinned = veilset_here(*command, site.folder, "--json")
    assert unpinned.json()["written"] == ["index.html"]
    assert "nothing vouches for it" in unpinned.err
    expect(visit().locator("#states")).to_contain_text("no key was given to this page")
    (tmp_path / "index.html").write_text("<h1>mine</h1>")
    refusal = veilset_here(*command, tmp_path, "--public-key", PUBLIC_KEY.hex()).complaint()
    assert refusal == "out holds an index.html that is not the page of members; give another folder"
    assert (tmp_path / "index.html").read_text() == "<h1>mine</h1>"
    assert not list(site.folder.rglob("*.part"))
    assert json.loads((site.folder / "releases.json").read_text())["set"] == "members"
