// The live page of a run: events come over one stream, each changes a few elements, and receiving one twice
// changes nothing.

import { countWaits } from "./badge.js";
import { partsOf, place } from "./dom.js";

const ENDED = ["completed", "failed", "cancelled", "expired"];
const LOOK_EVERY = 4000;
const { run } = document.body.dataset;
let after = document.body.dataset.after;
let source = null;
let failures = 0;

// Puts parts in their places. The waits may have changed, perhaps through another user.
function put(html) {
  const before = waiting();
  partsOf(html).forEach(place);
  if (waiting() !== before) countWaits();
}

function waiting() {
  return [...document.querySelectorAll("form[data-kind]")].map((one) => one.id).join(" ");
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
      const follows = atEnd();
      after = event.lastEventId;
      take(read(event.data));
      if (follows) scrollTo({ top: document.documentElement.scrollHeight });
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
}

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

function atEnd() {
  return innerHeight + scrollY >= document.documentElement.scrollHeight - 40 && scrollY > 0;
}

if (document.getElementById("run-status").hasAttribute("data-ended")) watchEnd();
else open();
