// Forms that change something: they are sent as JSON, and server errors are shown next to them.

export function listen() {
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.dataset.api) return;
    event.preventDefault();
    send(form, event.submitter);
  });
  document.addEventListener("keydown", (event) => {
    // Pressing Enter in the reason field must not decide: no button is the default.
    if (event.key === "Enter" && event.target.matches(".approval input")) event.preventDefault();
  });
  const [left, until] = JSON.parse(sessionStorage.getItem(NOTICE) ?? "[]");
  if (left && Date.now() < until) notice(left);
  document.addEventListener("toggle", enableWithin, true);
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-once]");
    if (form) delete form.dataset.key; // a changed form is a new request
  });
}

// Fields within closed details are not part of the form when it is sent without a script.
function enableWithin(event) {
  if (!(event.target instanceof HTMLDetailsElement)) return;
  for (const field of event.target.querySelectorAll("[data-changed]")) field.disabled = !event.target.open;
}

async function send(form, submitter) {
  if (form.hasAttribute("aria-busy")) return;
  tell(form, "");
  let body;
  try {
    body = JSON.stringify(contents(form, submitter));
  } catch (error) {
    return tell(form, error.message);
  }
  form.setAttribute("aria-busy", "true");
  try {
    const response = await fetch(form.dataset.api, {
      method: form.dataset.method ?? "POST",
      headers: { "Content-Type": "application/json", Accept: "application/json", ...once(form) },
      body,
    });
    const answer = response.status === 204 ? {} : await response.json().catch(() => ({}));
    const words = [answer.detail ?? response.statusText, answer.fix].filter(Boolean).join(" ");
    if (response.ok) await done(form, answer);
    else if (answer.code === "already_answered") tooLate(words);
    else if (response.status === 401) tell(form, words, signIn(), "Sign in");
    else {
      tell(form, words);
      if (response.status === 409) document.dispatchEvent(new Event("cuebook:refused")); // the page may be behind
    }
  } catch {
    tell(form, "The server cannot be reached. Is it still running?");
  } finally {
    form.removeAttribute("aria-busy");
  }
}

// The URL of a sign-in that returns to this page.
export function signIn(place = "/sign-in") {
  return `${place}?next=${encodeURIComponent(location.pathname + location.search + location.hash)}`;
}

// A double click starts only one run.
function once(form) {
  if (!form.hasAttribute("data-once")) return {};
  form.dataset.key ??= [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16)).join("-");
  return { "Idempotency-Key": form.dataset.key };
}

function contents(form, submitter) {
  const made = {};
  const meant = submitter?.value;
  for (const field of form.elements) {
    if ((field.type === "radio" && !field.checked) || "plain" in field.dataset) continue;
    const { group, name, list, budget } = field.dataset;
    if (field.dataset.answer) {
      made.value = answered(field, made.value);
    } else if (list) {
      if (field.checked) (made[list] ??= []).push(field.value);
    } else if (budget) {
      made.settings = { budget: { ...JSON.parse(field.dataset.others), [budget]: Number(field.value) } };
    } else if ("choice" in field.dataset) {
      const chosen = field.selectedOptions[0].dataset;
      Object.assign(made, { step: chosen.step, visit: Number(chosen.visit), path: chosen.path });
    } else if (group) {
      if (isMeant(field)) (made[group] ??= Object.create(null))[name] = valueOf(field); // any name, even __proto__
    } else if (field.name && field.type !== "submit" && (!field.dataset.for || field.dataset.for === meant)) {
      if (field.value !== "" || !("json" in field.dataset)) made[field.name] = valueOf(field);
    }
  }
  if (submitter?.name) made[submitter.name] = submitter.value;
  return made;
}

// A field of a form with a schema: its value goes into an object under its name, or is the whole answer.
function answered(field, before) {
  const { answer, name } = field.dataset;
  const empty = answer !== "boolean" && field.value === "" && !field.required;
  const value = answer === "boolean" ? field.checked : answer === "number" ? Number(field.value) : field.value;
  if (!name) return value;
  const made = before ?? Object.create(null);
  if (!empty) made[name] = value;
  return made;
}

function isMeant(field) {
  if (field.disabled) return false;
  if ("changed" in field.dataset) return isChanged(field);
  if ("boolean" in field.dataset) return true;
  return "switch" in field.dataset ? field.checked : field.value !== "";
}

function isChanged(field) {
  if (field.type === "checkbox") return field.checked !== field.defaultChecked;
  if (field.options) return !field.selectedOptions[0]?.defaultSelected;
  return field.value !== field.defaultValue;
}

function valueOf(field) {
  if ("number" in field.dataset) return Number(field.value);
  if ("boolean" in field.dataset) return field.checked ? "true" : "false";
  if ("switch" in field.dataset) return field.checked;
  if (!("json" in field.dataset)) return field.value;
  try {
    return JSON.parse(field.value);
  } catch (error) {
    throw new Error(`Invalid JSON: ${error.message}`);
  }
}

// Commands are between backticks.
function tell(form, words, href, name) {
  const place = form.querySelector(".problem") ?? problemBelow(form);
  place.hidden = !words;
  place.replaceChildren(...words.split("`").map((piece, number) => (number % 2 ? element("code", piece) : piece)));
  if (href) place.append(" ", Object.assign(element("a", name), { href, target: "_blank" }));
}

function element(tag, words) {
  return Object.assign(document.createElement(tag), { textContent: words });
}

// Someone else was first: the form is removed and the message stays. A run's page is updated by its stream.
function tooLate(words) {
  document.dispatchEvent(new Event("cuebook:done"));
  if (document.body.dataset.run) return notice(words);
  // The page may reload when the run continues; the message survives that.
  sessionStorage.setItem(NOTICE, JSON.stringify([words, Date.now() + 15000]));
  location.reload();
}

const NOTICE = "cuebook-notice";

function notice(words) {
  const place = document.getElementById("notice");
  place.textContent = words;
  place.hidden = false;
  place.scrollIntoView({ block: "nearest" });
}

function problemBelow(form) {
  const made = document.createElement("p");
  made.className = "problem";
  made.setAttribute("role", "alert");
  form.append(made);
  return made;
}

async function done(form, answer) {
  document.dispatchEvent(new Event("cuebook:done"));
  if (form.dataset.show) {
    const place = form.querySelector("output");
    place.hidden = false;
    place.textContent = answer[form.dataset.show];
  } else if (form.dataset.go) {
    const to = form.dataset.go.replace("{run}", encodeURIComponent(answer.run));
    if (to !== location.pathname) return location.assign(to);
    await takenUp(answer);
    location.reload();
  } else if ("reload" in form.dataset || !document.body.dataset.run) {
    location.reload();
  }
}

const ENDED = ["completed", "failed", "cancelled", "expired"];

// A continued run counts as ended until a process picks it up; then its page is live again.
async function takenUp({ run, status, updated }) {
  for (let now = { status, updated }; ENDED.includes(now.status) && now.updated === updated; ) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    const response = await fetch(`/api/runs?run=${encodeURIComponent(run)}`, { headers: { Accept: "application/json" } });
    if (!response.ok) return;
    [now] = (await response.json()).runs;
  }
}
