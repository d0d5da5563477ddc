// The page that `veilset page` writes: asks a release about elements in this browser's memory. Nothing is sent or stored.

import { openRelease, posterior } from "./reader.js";

const CHUNK = 2000; // elements between two chances for the browser to react
const ROWS = 200;
const LOOK_EVERY_MS = 5 * 60 * 1000;

const { set, keys, trusted } = document.documentElement.dataset;
const at = (id) => document.getElementById(id);

let index; // what releases.json says
let parts = []; // the release files in memory: {file, bytes}
let release;
let prior = at("prior").valueAsNumber / 100;
let secret = null;
let opened; // the secret that `release` was opened with
let loading = Promise.resolve();
let file; // a chosen file: {name, text, table}
let asked; // the elements that were asked about last
let answered; // {elements, answers, scores}
let run = 0;

// ---- elements of the page

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function show(id, yes = true) {
  at(id).hidden = !yes;
}

/** Say what is wrong, or that nothing is any more. */
function notice(text = "") {
  at("notice").textContent = text;
  show("notice", text !== "");
}

function share(value) {
  const percent = 100 * value;
  if (value === 0 || value === 1) return `${percent}%`;
  return value >= 0.001 && value <= 0.999 ? `${percent.toFixed(2)}%` : `${Number(percent.toPrecision(4))}%`;
}

const number = (value) => value.toLocaleString("en");

/** A share of a whole as a bar between words. mark: where to draw a line. */
function bar(label, value, text, style, mark) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const part = (tag, attributes) => {
    const made = document.createElementNS(svg.namespaceURI, tag);
    for (const [name, given] of Object.entries(attributes)) made.setAttribute(name, given);
    svg.append(made);
  };
  svg.setAttribute("viewBox", "0 0 1000 20");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true"); // the words beside it say the same
  part("rect", { class: "rest", width: 1000, height: 20 });
  part("rect", { class: style, width: 1000 * value, height: 20 });
  if (mark !== undefined) part("path", { class: "mark", d: `M${1000 * mark} 0V20` });
  return element("div", { className: "bar" }, element("span", {}, label), svg, element("span", {}, text));
}

// ---- releases

async function fetched(path, cache) {
  let answer;
  try {
    answer = await fetch(path, { cache, credentials: "same-origin" });
  } catch {
    throw new Error(`${path} cannot be fetched, as the server does not answer`);
  }
  if (!answer.ok) throw new Error(`${path} cannot be fetched: the server answers ${answer.status}`);
  return answer;
}

/** Open what releases.json names, of which only the new files are fetched; true if that is another release. */
async function load() {
  const newest = await (await fetched("releases.json", "no-store")).json();
  const known = newest.parts.length === parts.length && newest.parts.every(({ file }, i) => file === parts[i].file);
  if (known && opened === secret) return false;
  const found = [];
  for (const { file } of newest.parts) {
    const bytes = parts.find((part) => part.file === file)?.bytes ?? new Uint8Array(await (await fetched(file, "no-cache")).arrayBuffer());
    found.push({ file, bytes });
  }
  const whole = new Uint8Array(await new Blob(found.map((part) => part.bytes)).arrayBuffer());
  const minSequence = release?.header.sequence ?? 1n;
  release = openRelease(whole, { publicKeys: keys.split(" "), setName: set, secret, minSequence });
  [index, parts, opened] = [newest, found, secret];
  return true;
}

/** `load` after what is loading already; keeps the release that is there where it fails. */
function look() {
  loading = loading.then(async () => {
    try {
      const newer = await load();
      notice(warning());
      if (newer) {
        showRelease();
        if (asked) ask(asked);
      }
      at("release").textContent = `Release ${release.header.sequence} of ${time(Number(release.header.createdAtUs / 1000n))}, ${newer ? "checked" : "the newest there is"}.`;
    } catch (error) {
      const kept = release ? ` Answers are still those of release ${release.header.sequence}.` : " There are no answers without it.";
      notice(`The newest release cannot be used: ${error.message}.${kept}`);
    }
  });
  return loading;
}

function warning() {
  if (release.saturated) return "This release holds more than it was made for: all answers are no.";
  const left = release.saturatedParts.map((number) => `Increment ${number} holds more than it was made for, and is left out of the answers.`);
  return left.join(" ");
}

const time = (milliseconds) => `${new Date(milliseconds).toISOString().replace("T", " ").slice(0, 16)} UTC`;

function showRelease() {
  const good = trusted === "yes";
  at("states").replaceChildren(
    element("span", { className: `state ${good ? "good" : "warn"}` }, good ? "signed by a key that this page was made to trust" : "whole, but no key was given to this page: who signed it is not checked"),
  );
  at("rates").replaceChildren(
    bar("members", release.truePositiveRate, share(release.truePositiveRate), "series-1"),
    bar("non-members", release.falsePositiveRate, share(release.falsePositiveRate), "series-2"),
  );
  show("worth");
  showPosteriors();
  showPromise();
  const { scheme } = release.header.hashing;
  show("secret", scheme === "blake2b-1");
  at("secret-state").textContent = secret ? "The secret fits." : "";
  at("go").disabled = scheme === "blake2b-1" && !secret;
}

function showPosteriors() {
  const after = (member, other) => (prior * member + (1 - prior) * other > 0 ? (prior * member) / (prior * member + (1 - prior) * other) : prior);
  const [yes, no] = [after(release.truePositiveRate, release.falsePositiveRate), after(1 - release.truePositiveRate, 1 - release.falsePositiveRate)];
  at("expected").textContent = `${at("prior").value}%`;
  at("posteriors").replaceChildren(bar("after a yes", yes, share(yes), "series-1", prior), bar("after a no", no, share(no), "series-1", prior));
}

function showPromise() {
  const { statement, words } = index;
  at("guesses").replaceChildren(...index.guesses.map(([what, text]) => bar(what, parseFloat(text) / 100, text, "series-2", 0.5)));
  const { total_epsilon: spent, limit_epsilon: limit } = statement;
  at("budget").replaceChildren(bar("spent so far", spent / limit, `ε ${+spent.toPrecision(4)} of ${+limit.toPrecision(4)}`, "series-2"));
  at("promise").replaceChildren(...words.map((line) => element("p", {}, line)));
  at("files").replaceChildren(
    ...index.parts.map((part) => element("tr", {}, ...[part.sequence, time(Date.parse(part.created_at)), number(part.bytes)].map((text) => element("td", {}, `${text}`)))),
  );
  show("promised");
  show("parts");
}

// ---- lists

/** The rows of a CSV text; throws an Error that names the line of what is none. */
function table(text, delimiter) {
  const cell = new RegExp(`(?:"([^"]*(?:""[^"]*)*)"|([^"${delimiter}\r\n]*))(${delimiter}|\r?\n|$)`, "y");
  const rows = [];
  let row = [];
  while (cell.lastIndex < text.length || row.length > 0) {
    const start = cell.lastIndex;
    const found = cell.exec(text);
    if (!found) throw new Error(`line ${text.slice(0, start).split("\n").length} has a quote or a line end where none may stand`);
    row.push(found[1]?.replaceAll('""', '"') ?? found[2] ?? "");
    if (found[3] === delimiter) continue;
    if (row.length !== (rows[0] ?? row).length && row.join("")) throw new Error(`row ${rows.length + 1} has ${row.length} cells, and the first ${rows[0].length}`);
    rows.push(row);
    row = [];
  }
  return rows;
}

function delimiterOf(text) {
  const [first] = text.split("\n", 1);
  const counted = [",", ";", "\t"].map((mark) => first.split(mark).length);
  return [",", ";", "\t"][counted.indexOf(Math.max(...counted))];
}

async function take(chosen) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await chosen.arrayBuffer());
    file = { name: chosen.name, text };
    if (/\.[ct]sv$/i.test(chosen.name)) file.table = table(text, delimiterOf(text));
    notice();
  } catch (error) {
    dropFile();
    notice(`${chosen.name} cannot be read: ${error instanceof TypeError ? "it is not UTF-8 text" : error.message}.`);
    return;
  }
  at("list").value = "";
  at("list").placeholder = chosen.name;
  show("no-file");
  show("columns", file.table !== undefined);
  nameColumns();
}

function dropFile() {
  file = undefined;
  at("file").value = "";
  at("list").placeholder = "";
  show("no-file", false);
  show("columns", false);
}

function nameColumns() {
  const named = at("header").checked;
  at("column").replaceChildren(...(file?.table?.[0] ?? []).map((name, i) => element("option", { value: i }, named && name ? name : `column ${i + 1}`)));
}

/** What is asked about: the lines or cells that are not empty, as `veilset query` takes them. */
function elements() {
  const column = Number(at("column").value);
  const given = file?.table
    ? file.table.slice(at("header").checked ? 1 : 0).map((row) => row[column] ?? "")
    : (file?.text ?? at("list").value).split(/\r?\n/);
  return given.filter((text) => text !== "");
}

// ---- answers

/** Answers and scores of a few; one by one where an element is none. */
function few(from, list) {
  try {
    const { members, scores } = from.answers(list);
    return list.map((_, i) => [members[i] ? "yes" : "no", scores[i]]);
  } catch (error) {
    if (error.name !== "InvalidInput") throw error;
    return list.length === 1 ? [["invalid", NaN]] : list.flatMap((one) => few(from, [one]));
  }
}

async function ask(list) {
  const [own, from] = [++run, release];
  asked = list;
  const answers = [];
  const scores = new Float64Array(list.length);
  show("progress", list.length > CHUNK);
  for (let start = 0; start < list.length; start += CHUNK) {
    for (const [answer, score] of few(from, list.slice(start, start + CHUNK))) scores[answers.push(answer) - 1] = score;
    at("progress").value = answers.length / list.length;
    await new Promise((done) => setTimeout(done));
    if (own !== run) return; // asked anew meanwhile
  }
  show("progress", false);
  answered = { elements: list, answers, scores };
  showAnswers();
}

function showAnswers() {
  const { answers } = answered;
  const count = (kind) => answers.reduce((sum, answer) => sum + (answer === kind), 0);
  const [yes, invalid] = [count("yes"), count("invalid")];
  const expected = (answers.length - invalid) * release.falsePositiveRate;
  at("summary").textContent =
    `${number(yes)} of ${number(answers.length)} are taken for members.` +
    (invalid ? ` Invalid under the normalization ${release.header.normalization}: ${number(invalid)}.` : "") +
    ` If none were members, about ${number(Number(expected.toFixed(expected < 10 ? 1 : 0)))} would be answered yes all the same.`;
  show("answers");
  at("rows").replaceChildren();
  showRows();
}

const chance = (i) => (answered.answers[i] === "invalid" ? "" : posterior(answered.scores[i], prior));

/** The next rows of those chosen. */
function showRows() {
  const kind = at("shown").value;
  const rows = at("rows");
  let next = Number(rows.lastElementChild?.dataset.number ?? -1) + 1;
  for (let added = 0; next < answered.answers.length && added < ROWS; next++) {
    const answer = answered.answers[next];
    if (kind && answer !== kind) continue;
    const probability = chance(next);
    const row = element("tr", {}, element("td", {}, answered.elements[next]), element("td", { className: answer }, answer), element("td", {}, probability === "" ? "" : share(probability)));
    row.dataset.number = next;
    rows.append(row);
    added++;
  }
  show("more", answered.answers.some((answer, i) => i >= next && (!kind || answer === kind)));
}

function save() {
  const quoted = (text) => (/[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const lines = answered.answers.map((answer, i) => `${quoted(answered.elements[i])},${answer},${chance(i)}\r\n`);
  const address = URL.createObjectURL(new Blob(["element,answer,probability\r\n", ...lines], { type: "text/csv" }));
  element("a", { href: address, download: `${set}-${release.header.sequence}-answers.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

// ---- what a person does

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const list = elements();
  if (list.length === 0) return notice("There is nothing to ask about: type elements, or choose a file.");
  notice();
  ask(list);
});
at("file").addEventListener("change", () => at("file").files[0] && take(at("file").files[0]));
at("no-file").addEventListener("click", dropFile);
at("list").addEventListener("input", dropFile);
at("header").addEventListener("change", nameColumns);
at("prior").addEventListener("input", () => {
  if (!at("prior").validity.valid) return;
  prior = at("prior").valueAsNumber / 100;
  if (release) showPosteriors();
  if (answered) showAnswers();
});
at("shown").addEventListener("change", () => {
  at("rows").replaceChildren();
  showRows();
});
at("more").addEventListener("click", showRows);
at("save").addEventListener("click", save);
at("look").addEventListener("click", look);
at("secret-file").addEventListener("change", async () => {
  const bytes = new Uint8Array(await at("secret-file").files[0].arrayBuffer());
  secret = bytes.at(-1) === 10 ? bytes.subarray(0, -1) : bytes; // without the end of its line
  at("secret-file").value = "";
  look();
});
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  const [dropped] = event.dataTransfer.files;
  if (!dropped) return; // text goes where it falls
  event.preventDefault();
  take(dropped);
});
setInterval(look, LOOK_EVERY_MS);
notice();
look();
