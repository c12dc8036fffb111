// The live page of a run: events come over one stream, each changes a few elements, and receiving one twice
// changes nothing.

import { countWaits } from "./badge.js";
import { partsOf, piecesOf, place } from "./dom.js";
import { follow } from "./follow.js";

const ENDED = ["completed", "failed", "cancelled", "expired"];
const LOOK_EVERY = 4000;
const { run } = document.body.dataset;
let after = document.body.dataset.after;
let source = null;
let failures = 0;

// Puts parts in their places. The waits may have changed, perhaps through another user.
function put(html) {
  const before = waiting();
  const parts = partsOf(html);
  parts.forEach(place);
  if (waiting() !== before) countWaits();
  showElapsed();
  follow(parts);
}

function waiting() {
  const lists = ["run-waits", "asks"].map((id) => document.getElementById(id));
  return lists.flatMap((one) => [...(one?.querySelectorAll("form[data-kind], a[data-leads]") ?? [])].map((to) => to.id || to.hash)).join(" ");
}

// JSON with numbers in their original notation: 30.0 is not 30, and long numbers keep all digits.
function read(data) {
  return JSON.parse(data, (key, value, context) =>
    typeof value === "number" && JSON.rawJSON && context ? JSON.rawJSON(context.source) : value,
  );
}

const takes = {
  "step-update": ({ html }) => put(html),
  "step-rendered": ({ html }) => put(html),
  "step-content": ({ step, content }) => append(step, content),
  "step-block": ({ step, html, first, rest }) => split(step, html, Number(JSON.stringify(first)), rest),
  "variable-update": ({ name, value }) => show(name, value),
  "step-paused": ({ message }) => announce("paused", message),
  elicitation: ({ prompt }) => announce("asks", prompt),
  approval: ({ prompt }) => announce("asks", prompt),
  status: ({ html }) => {
    put(html);
    say(`The run is ${document.getElementById("run-status").dataset.status}.`);
    close();
    watchEnd();
  },
};

function open() {
  source = new EventSource(`/api/runs/${encodeURIComponent(run)}/stream?after=${encodeURIComponent(after)}`);
  source.onopen = () => {
    failures = 0;
    lost(false);
  };
  source.onerror = () => {
    lost(true);
    if (source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    source.close();
    again();
  };
  for (const [name, take] of Object.entries(takes)) {
    source.addEventListener(name, (event) => {
      after = event.lastEventId;
      take(read(event.data));
    });
  }
}

function close() {
  source.close();
  lost(false);
}

// The run's row, or the HTTP status of an error.
async function glance() {
  const response = await fetch(`/api/runs?run=${encodeURIComponent(run)}`, { headers: { Accept: "application/json" } });
  return response.ok ? (await response.json()).runs[0] : { refused: response.status };
}

// A finished run may be continued elsewhere, in another tab or a terminal. Its stream then has new events.
let ended = null;

function watchEnd() {
  if (ended !== null) return;
  ended = {};
  lookAgain();
}

async function lookAgain() {
  const before = ended;
  if (before === null) return;
  try {
    const { status, updated, refused } = document.hidden ? { refused: "unseen" } : await glance();
    if (ended !== before || refused) return;
    if (!ENDED.includes(status) || updated !== (before.updated ?? updated)) {
      ended = null;
      open();
    } else before.updated = updated;
  } catch {
    // the server cannot be reached; try again next time
  }
}

setInterval(lookAgain, LOOK_EVERY);
document.addEventListener("visibilitychange", lookAgain);
document.addEventListener("cuebook:refused", lookAgain);

// The server refused the stream, or cannot be reached: find out which, and try again later.
async function again() {
  failures += 1;
  try {
    const { status, refused } = await glance();
    if (refused === 401 || ENDED.includes(status)) return location.reload();
  } catch {
    // the server cannot be reached; it may come back
  }
  setTimeout(open, Math.min(1000 * 2 ** failures, 15000));
}

function lost(is) {
  document.getElementById("connection").hidden = !is;
}

// A step's text as it streams.
function append(step, content) {
  const text = document.getElementById(`text-${step}`);
  if (!text || text.querySelector(".rendered")) return; // text after a step's output chooses the next step
  let tail = text.querySelector(".tail");
  if (!tail) {
    tail = document.createElement("pre");
    tail.className = "tail";
    text.replaceChildren(tail);
  }
  if (tail.lastChild instanceof Text) tail.lastChild.appendData(content);
  else tail.append(content);
  follow([]);
}

// The beginning of a streaming text becomes rendered blocks; the text itself stays, for copying, but is not shown.
function split(step, html, first, rest) {
  const text = document.getElementById(`text-${step}`);
  const tail = text?.querySelector(":scope > .tail");
  let blocks = document.getElementById(`blocks-${step}`);
  if (!tail || (blocks?.children.length ?? 0) < first) return;
  if (!blocks) {
    blocks = Object.assign(document.createElement("div"), { id: `blocks-${step}`, className: "blocks" });
    text.prepend(blocks);
  }
  partsOf(html).forEach(place);
  const said = Object.assign(document.createElement("span"), { className: "said" });
  said.textContent = tail.textContent.slice(0, tail.textContent.length - rest.length);
  tail.replaceChildren(said, rest);
  follow([]);
}

// How long the run has been driven, with the server's clock.
const ahead = Date.now() / 1000 - Number(document.body.dataset.now);

function showElapsed() {
  const clock = document.querySelector("#run-status .elapsed");
  if (!clock) return;
  const { seconds, since } = clock.dataset;
  const passed = Math.floor(Number(seconds) + Math.max(0, Date.now() / 1000 - ahead - Number(since)));
  const [hours, minutes] = [Math.floor(passed / 3600), Math.floor(passed / 60) % 60];
  clock.textContent = hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${passed % 60} s` : `${passed} s`;
}
setInterval(showElapsed, 1000);
showElapsed();

function show(name, value) {
  const id = `var-${name}`;
  let line = document.getElementById(id);
  if (!line) {
    line = document.createElement("li");
    line.id = id;
    line.dataset.part = "";
    line.dataset.into = "variables";
    const label = document.createElement("b");
    label.textContent = name;
    const pre = document.createElement("pre");
    pre.tabIndex = 0;
    line.append(label, pre);
    document.getElementById("variables").append(line);
  }
  line.querySelector("pre").textContent = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  line.removeAttribute("class");
  void line.offsetWidth; // restarts the animation
  line.className = "pulse";
  setTimeout(() => line.removeAttribute("class"), 1600);
}

const title = document.title;

// For screen readers.
const heard = document.createElement("p");
heard.className = "unseen";
heard.setAttribute("aria-live", "assertive");
document.body.append(heard);

function say(words) {
  heard.textContent = words;
  setTimeout(() => (heard.textContent = ""), 5000);
}

// The title of a background tab shows that the run is waiting for a person.
function announce(what, words) {
  say(words);
  if (document.hidden) document.title = `(${what}) ${title}`;
}
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) document.title = title;
});

// From the banner to the wait: questions get the focus, decisions are only scrolled to.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-leads]");
  const form = link && document.getElementById(decodeURIComponent(link.hash.slice(1)));
  if (!form) return;
  event.preventDefault();
  const field = form.dataset.kind === "question" && form.querySelector("input, select, button");
  form.scrollIntoView({ block: form.offsetHeight > innerHeight / 2 ? "start" : "center" });
  (field || form).focus({ preventScroll: true });
});

// Links that lead to something folded open it.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-opens]");
  const folded = link && document.getElementById(link.hash.slice(1));
  if (folded) folded.open = true;
});

// Everything that was sent to a model is fetched when it is opened: it may be long.
document.addEventListener(
  "toggle",
  async ({ target }) => {
    const link = target.open && target.querySelector?.(":scope > p > a[data-sent]");
    if (!link || target.querySelector(".sent")) return;
    const response = await fetch(link.href, { headers: { Accept: "text/html" } });
    if (!response.ok || target.querySelector(".sent")) return;
    const place = Object.assign(document.createElement("div"), { className: "sent" });
    place.append(...piecesOf(await response.text(), "section.panel"));
    target.append(place);
  },
  true,
);

if (document.getElementById("run-status").hasAttribute("data-ended")) watchEnd();
else open();
