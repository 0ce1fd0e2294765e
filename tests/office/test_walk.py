"""A walk through a started office in Chromium, from the first password to the Word table."""

from __future__ import annotations

import re
import shutil
import signal

import docx
import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

import dpeffects as dpe
from dpeffects.services.office import database
from dpeffects.summary import Table
from tests.office.offices import PASSWORD, Running, Server, until

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not (BROWSER and DRIVER), reason="needs the browser chromium"),
]
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync
    --disable-background-networking --disable-component-update --disable-dev-shm-usage"""
LONG = 300.0
"""Seconds that a machine with much to do may take; what is waited for is there much earlier."""
SCREENS = {390: 1, 800: 1, 1280: 1, 640: 2, 320: 4}
"""Widths in pixels of CSS, with what a pixel is enlarged to: the last two are 1280 px enlarged."""
FIELDS = "a[href], button, input:not([type=hidden]), select, textarea"


class Mouse:
    """Somebody who sees the pages, and points at what they name."""

    def __init__(self, address, folder):
        self.address, self.folder = address, folder
        options = webdriver.ChromeOptions()
        options.binary_location = BROWSER
        for flag in (*FLAGS.split(), f"--user-data-dir={folder / 'profile'}"):
            options.add_argument(flag)
        options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
        self.driver = webdriver.Chrome(options, Service(DRIVER))
        self.driver.set_script_timeout(LONG)

    def open(self, path):
        self.driver.get(self.address + path)

    def wait(self, done):
        return WebDriverWait(self.driver, LONG, 0.1, [WebDriverException]).until(lambda _: done())

    def run(self, script, *given):
        return self.driver.execute_script(script, *given)

    @property
    def text(self):
        return self.driver.find_element(By.TAG_NAME, "main").text

    def tables(self):
        """The cells of all tables, by caption."""
        found = self.run("""return [...document.querySelectorAll("main table")].map(
            table => [table.caption, ...table.rows].map(row =>
                row.cells ? [...row.cells].map(cell => cell.innerText) : row.innerText))""")
        return {head: [[*map(plain, row)] for row in rows] for head, *rows in found}

    def find(self, name):
        """The first link, button or field whose name, as it is read aloud, begins so."""
        for one in self.driver.find_elements(By.CSS_SELECTOR, FIELDS):
            if plain(one.accessible_name).startswith(name):
                return one
        raise AssertionError(f"nothing is named {name!r} here:\n{self.text}")

    def fill(self, name, text):
        one = self.find(name)
        one.clear()
        one.send_keys(text)

    def choose(self, name, text):
        of = Select(self.find(name))
        of.select_by_visible_text(next(x.text for x in of.options if x.text.startswith(text)))

    def activate(self, name):
        self.find(name).click()

    def press(self, name):
        """Follow a link or press a button, and wait for the page that comes."""
        self.run("window.before = true")
        self.activate(name)
        new = "return !window.before && document.readyState == 'complete'"
        self.wait(lambda: self.run(new))

    def download(self, name, file):
        self.activate(name)

        def there():
            return next((x for x in self.folder.glob(f"*{file}") if x.stat().st_size), None)

        return until(there, LONG)

    def sign_in(self, name, password):
        self.fill("Name", name)
        self.fill("Password", password)
        self.press("Sign in")


class Keyboard(Mouse):
    """Somebody who has no mouse: Tab, Enter, and typed text."""

    def keys(self, *typed):
        ActionChains(self.driver).send_keys(*typed).perform()

    def find(self, name):
        for _ in range(200):
            self.keys(Keys.TAB)
            one = self.driver.switch_to.active_element
            if one.tag_name in ("body", "html"):
                continue
            around = [one.value_of_css_property(f"outline-{x}") for x in ("style", "width")]
            assert around == ["solid", "3px"], (
                f"the focus cannot be seen: {plain(one.accessible_name)}"
            )
            if plain(one.accessible_name).startswith(name):
                return one
        raise AssertionError(f"no Tab leads to {name!r} here:\n{self.text}")

    def fill(self, name, text):
        self.find(name)
        chain = ActionChains(self.driver).key_down(Keys.CONTROL).send_keys("a")
        chain.key_up(Keys.CONTROL).send_keys(text).perform()

    def choose(self, name, text):
        of = self.find(name)
        self.keys(text)
        assert Select(of).first_selected_option.text.startswith(text)

    def activate(self, name):
        self.find(name)
        self.keys(Keys.ENTER)


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    """A started office that asks a steward about each request."""
    running = Running(tmp_path_factory.mktemp("office"), epsilon=5.0, sign_ins_per_minute=1000)
    server = Server(running)
    running.address = server.ready().address
    yield running
    server.end(signal.SIGTERM)
    running.database.close()


@pytest.fixture
def browse(tmp_path):
    """A function that starts a browser for somebody with a mouse, or without."""
    started = []

    def start(who, address=""):
        (folder := tmp_path / "browser").mkdir()
        started.append(who(address, folder))
        return started[0]

    yield start
    for one in started:
        one.driver.quit()


def plain(text):
    """A text with plain spaces and signs."""
    return " ".join(text.replace("\N{MINUS SIGN}", "-").split())


def cells(block):
    """What a summary has in a table, or as names with texts."""
    heads = [block.columns] if isinstance(block, Table) else []
    return [[*map(plain, row)] for row in (*heads, *getattr(block, "rows", ()))]


@pytest.mark.parametrize(("who", "name", "cost"), [(Mouse, "clara", 1.5), (Keyboard, "carl", 1.6)])
def test_from_the_first_password_to_the_word_table(office, browse, who, name, cost):
    spent = office.desk.budget()["dataset"]["epsilon"]["spent"]
    first = office.accounts.add("test", name, "researcher")
    office.accounts.set_member("test", name, "ageing")
    one, own = browse(who, office.address), "a password of my own"
    one.open("/")
    one.sign_in(name, first)
    one.fill("Current password", first)
    one.fill("New password", own)
    one.fill("New password again", own)
    one.press("Change it")
    one.sign_in(name, own)
    assert "Your requests: none." in one.text

    one.press("Dataset")
    codebook = one.tables()["What columns may hold"]
    assert codebook[0] == ["Column", "Meaning", "Values", "May be"]
    assert [row[0] for row in codebook[1:]] == ["y", "t", "x", "region"]
    assert codebook[3][2] == "0 to 10 years"

    one.press("New request")
    one.choose("What to estimate", "dp_att")
    one.choose("What to estimate", "dp_ate")
    one.fill("Formula", "y ~ t")
    one.fill("ε", str(cost))
    one.fill("Options", '{"design": "randomised"}')
    one.press("Show the plan")
    accuracy = "Expected accuracy (95 % confidence intervals)"
    (heads, planned) = one.tables()[accuracy]
    assert 0.0 < float(planned[heads.index("half-width")]) < 0.5
    assert office.desk.states(office.person(name)) == []
    assert one.find("Formula").get_attribute("value") == "y ~ t"
    one.press("Send the request")
    assert "Waits for approval" in one.text
    request = one.driver.current_url
    one.press("Sign out")

    one.sign_in("sue", PASSWORD)
    one.press("1 request waits")
    (waits,) = one.tables()["Requests that wait"][1:]
    assert waits[:2] == ["dp_ate y ~ t", f"ε {cost}"]
    assert waits[3] == f"{name}, ageing"
    one.press("dp_ate")
    assert one.driver.current_url == request
    assert one.tables()[accuracy] == [heads, planned]
    budgets = one.tables()["Privacy budget, without this request"]
    assert [row[0] for row in budgets[1:]] == ["dataset", "project ageing", name]
    assert budgets[1][1:3] == [f"{spent:g}", f"{5 - spent:g} of 5"]
    one.press(f"Approve: ε {cost}")
    one.press("Sign out")

    one.sign_in(name, own)
    one.press("dp_ate")
    for _ in range(20):
        if "Wait for the answer" not in one.text:
            break
        one.press("Wait for the answer")
    state = office.desk.state(office.person(name), request.rsplit("/", 1)[1])
    fit = getattr(dpe, state["kind"]).from_dict(state["result"])
    document = docx.Document(one.download("Word table", "table.docx"))
    word = [[[plain(x.text) for x in row.cells] for row in made.rows] for made in document.tables]
    expected = [(block.title, cells(block)) for block in fit.summary().blocks]
    assert word == [rows for _, rows in expected if rows]
    page = one.tables()
    assert page == {title: rows for title, rows in expected if title in page}
    effect = dict(zip(*page["Effect of t on y"], strict=True))
    assert float(effect["estimate"]) == pytest.approx(fit.estimate, abs=0.006)
    record = one.download("release record", "record.html").read_text()
    for words in ("y ~ t", f"{cost}-differential privacy", f"{fit.n}"):
        assert words in record
    assert office.desk.budget()["dataset"]["epsilon"]["spent"] == pytest.approx(spent + cost)
    one.press("Sign out")

    one.sign_in("bert", PASSWORD)
    assert "Your requests: none." in one.text
    for path in ("", "/table.docx", "/record.html"):
        one.driver.get(request + path)
        assert "there is no such request" in one.text


LOOK = """
const [signed, width] = arguments, wrong = [], all = css => [...document.querySelectorAll(css)];
const say = (e, words) => wrong.push(`${e.outerHTML.slice(0, 80)}: ${words}`);
const count = (css, most) => {
  if (all(css).length != most) wrong.push(`${all(css).length} of ${css}, not ${most}`);
};
count("html[lang=en]", 1); count("h1", 1); count("main", 1); count("header", 1);
count("nav[aria-label]", signed ? 1 : 0); count("meta[http-equiv=refresh]", 0);
if (!document.title.includes(all("h1")[0]?.innerText)) wrong.push("the title is another");
let before = 0;
for (const e of all("h1, h2, h3, h4")) {
  if (+e.tagName[1] > before + 1) say(e, "a level of headings is left out");
  before = +e.tagName[1];
}
for (const e of all("input:not([type=hidden]), select, textarea"))
  if (![...e.labels].some(x => x.textContent.trim())) say(e, "no label");
for (const e of all("a, button")) if (!e.textContent.trim()) say(e, "no name");
for (const e of all("table")) {
  if (!e.caption?.textContent.trim()) say(e, "no caption");
  if (!e.querySelector("th[scope=col]")) say(e, "no heads of columns");
}
for (const e of all("th")) if (!e.scope) say(e, "no scope");
for (const e of all("[id]")) if (all("#" + e.id).length > 1) say(e, "its id is taken");
const scrolls = e => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
if (document.documentElement.scrollWidth > width) wrong.push("the page is wider than the screen");
for (const e of all("body *")) {
  let box = e;
  while (box && !scrolls(box)) box = box.parentElement;
  if (!box && e.getBoundingClientRect().right > width + 1) say(e, "ends beyond the screen");
  if (box == e && e.scrollWidth > e.clientWidth && e.tabIndex < 0) say(e, "no key scrolls it");
}
const pen = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
function mixed(layers) {  // colours over each other, as the browser mixes them
  pen.globalAlpha = 1;
  pen.clearRect(0, 0, 1, 1);
  for (const [colour, part] of layers) {
    pen.globalAlpha = part; pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
  }
  const light = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).map(x => x / 255)
    .map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2];
}
for (const e of all("body *")) {
  const says = [...e.childNodes].some(x => x.nodeType == 3 && x.data.trim());
  if (!says && !e.matches("input, select, textarea")) continue;
  if (e.matches("option, .hidden, style")) continue;
  const layers = [];
  let part = 1;
  for (let x = e; x; x = x.parentElement) {
    layers.unshift([getComputedStyle(x).backgroundColor, 1]);
    part *= getComputedStyle(x).opacity;
  }
  const under = mixed(layers), over = mixed([...layers, [getComputedStyle(e).color, part]]);
  const ratio = (Math.max(under, over) + 0.05) / (Math.min(under, over) + 0.05);
  if (ratio < 4.5) say(e, `contrast ${ratio.toFixed(2)}`);
}
return wrong;
"""


def look(one, signed=True):
    """What somebody cannot use on this page, on any screen, in light or dark."""
    found = set()
    for width, enlarged in SCREENS.items():
        size = {"width": width, "height": 900, "deviceScaleFactor": enlarged, "mobile": False}
        one.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if width == 800 else "light"}
        one.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        found |= {f"{words}, at {width} px" for words in one.run(LOOK, signed, width)}
    one.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return sorted(found)


def test_every_page_can_be_used_by_everybody(office, browse):
    long = " + ".join(f"I(x > {k})" for k in range(1, 9))
    asked = {
        status: office.ask(formula=f"y ~ t | {long}", epsilon=0.2 + k / 100)["id"]
        for k, status in enumerate(("waiting", "running", "answered", "refused", "failed"))
    }
    sue = office.person("sue")
    office.desk.refuse(sue, asked["refused"], "a reason " * 20)
    data = dpe.simulate("confounded", n=1000, seed=1)
    fit = dpe.dp_ate("outcome ~ treatment", data, epsilon=1, design="randomised", seed=1)
    ready = {"answered": {"result": fit.to_json(), "kind": type(fit).__name__}}
    with office.database.write() as connection:
        for status in ("running", "answered", "failed"):
            values = {"status": status, **ready.get(status, {})}
            database.change(connection, database.REQUESTS, asked[status], **values)
    office.accounts.token("test", "anna", "ageing", "tables of every night")

    one, found = browse(Keyboard, office.address), {}
    one.open("/sign-in")
    one.keys(Keys.TAB, Keys.ENTER)  # skips to the content
    one.wait(lambda: one.driver.switch_to.active_element.tag_name == "main")
    found["sign in"] = look(one, signed=False)
    one.sign_in("anna", "a wrong password")
    found["not signed in"] = look(one, signed=False)
    own = [f"/requests/{request}" for request in asked.values()]
    for name, paths in {
        "anna": ("/", "/dataset", "/ask", "/tokens", "/password", "/queue", "/nothing", *own),
        "sue": ("/", "/queue", "/people", "/ledger", "/events", own[0]),
    }.items():
        one.open("/sign-in")
        one.sign_in(name, PASSWORD)
        for path in paths:
            one.open(path)
            signed = path not in ("/queue", "/nothing") or name == "sue"  # else it is an error
            found[name, path] = look(one, signed)
    one.open("/people")
    one.fill("Name", "dora")
    one.press("Add an account")
    assert re.search("New password of dora, which serves once: .{16}", one.text)
    found["a password"] = look(one)
    assert {page: wrong for page, wrong in found.items() if wrong} == {}


def test_what_nobody_could_use_is_found(browse):
    one = browse(Mouse)
    one.driver.get(
        "data:text/html,<!doctype html><title>x</title>"
        "<main style='background: white'><h1>x</h1><h3>y</h3>"
        "<p style='color: %23888; background: white'>grey</p><p style='width: 9in'>wide</p>"
        "<input><button></button><table><tr><th>a</th></tr></table></main>"
    )
    found = {re.sub(".*: |, at .*", "", line) for line in look(one, signed=False)}
    assert found == {
        *("0 of html[lang=en], not 1", "0 of header, not 1", "a level of headings is left out"),
        *("no label", "no name", "no caption", "no heads of columns", "no scope"),
        *("contrast 3.54", "the page is wider than the screen", "ends beyond the screen"),
    }
