// Keeps the step that is at work in view, until the reader scrolls away; a button then leads back to it.

const ACTIVE = new Set(["running", "tool_call", "awaiting_input", "awaiting_approval", "in_doubt", "paused"]);
const FILLED = "input:not([type=checkbox], [type=radio]), textarea, select";
const { run } = document.body.dataset;
const away = `cuebook-away-${run}`;
const cards = document.querySelector("#cards[data-follow]");
const strip = document.querySelector(".strip");
const rail = document.querySelector(".rail ol")?.parentElement;
const button = document.getElementById("jump");
const active = new Set(); // the keys of steps at work, in the order in which they began
let current = "";
let following = Boolean(cards) && !location.hash && !sessionStorage.getItem(away);
let ours = -1; // where this script scrolled to
let meant = 0; // when the reader last did something that scrolls
let waiting = []; // parts that were replaced since the last frame, if one is due
let due = 0;

const part = (name, key) => document.getElementById(`${name}-${key}`);

// Where the current step is on the screen, and the room for it below the strip.
function measured() {
  const [head, text] = [part("head", current), part("text", current)];
  if (!head) return null;
  const top = head.getBoundingClientRect().top;
  const bottom = Math.max(head.getBoundingClientRect().bottom, text?.getBoundingClientRect().bottom ?? 0);
  const above = strip.getBoundingClientRect().bottom + 12;
  return { top, bottom, above, below: innerHeight - 20, streams: ["running", "tool_call"].includes(head.dataset.status) };
}

function inView() {
  const at = measured();
  if (!at) return true;
  const fits = at.bottom - at.top <= at.below - at.above;
  if (fits && at.streams) return at.top >= at.above - 14 && at.bottom <= at.below + 4;
  if (at.streams) return at.bottom > at.above && at.bottom <= at.below + 4;
  return at.top >= at.above - 14 && at.top < at.below - 60;
}

function reveal(changed) {
  if (document.activeElement?.matches(FILLED) || !getSelection().isCollapsed) return;
  const at = measured();
  if (!at || inView()) return;
  const room = at.below - at.above;
  const tall = at.bottom - at.top > room;
  if (changed && !tall) scrollBy({ top: at.top - at.above - room / 5, behavior: "instant" });
  else if (at.streams && (tall || at.bottom > at.below)) scrollBy({ top: at.bottom - at.below, behavior: "instant" });
  else scrollBy({ top: at.top - at.above, behavior: "instant" });
  ours = scrollY;
}

function showButton() {
  const hidden = following || !active.size || inView();
  if (button.hidden !== hidden) button.hidden = hidden;
  button.textContent = hidden ? "" : `Jump to step ${part("step", current)?.dataset.name ?? ""}`;
}

function showInRail() {
  const line = part("rail", current);
  if (!line || rail.matches(":hover, :focus-within")) return;
  const [at, box] = [line.getBoundingClientRect(), rail.getBoundingClientRect()];
  if (at.top < box.top || at.bottom > box.bottom) rail.scrollTop += at.top - box.top - box.height / 3;
}

// Drawings scroll to the box that is at work.
function showInDrawing(boxes) {
  for (const box of boxes) {
    const picture = box.closest(".picture");
    if (!picture || picture.matches(":hover, :focus")) continue;
    const [at, place] = [box.getBoundingClientRect(), picture.getBoundingClientRect()];
    picture.scrollBy(at.x + at.width / 2 - place.x - place.width / 2, at.y + at.height / 2 - place.y - place.height / 2);
  }
}

const isAtWork = (one) => one.matches(".box") && ACTIVE.has(one.dataset.status);

// Parts of the page were replaced: the step at work may be another one now. Pages are measured once per frame: it is slow.
export function follow(parts) {
  if (!cards) return;
  waiting.push(...parts);
  due ||= document.hidden ? setTimeout(look, 200) : requestAnimationFrame(look);
}

function look() {
  const [before, parts] = [current, waiting];
  [waiting, due] = [[], 0];
  for (const one of parts) {
    if (one.hasAttribute("data-gone")) active.delete(one.id.replace(/^step-/, ""));
    for (const head of one.matches(".step-head") ? [one] : one.querySelectorAll(".step-head")) {
      const key = head.id.replace(/^head-/, "");
      if (ACTIVE.has(head.dataset.status)) active.add(key);
      else active.delete(key);
    }
  }
  const latest = [...active].at(-1);
  if (latest && (!active.has(current) || part("step", current)?.contains(part("step", latest)))) current = latest;
  if (following) {
    reveal(current !== before);
    if (current !== before) showInRail();
  }
  showButton();
  showInDrawing(parts.filter(isAtWork));
}

// Where there is room beside the cards, the pane of the drawing is open.
for (const pane of document.querySelectorAll("details.pane")) pane.open = matchMedia("(min-width: 46rem)").matches;

if (cards) {
  if (following) history.scrollRestoration = "manual";
  addEventListener(
    "scroll",
    () => {
      if (Math.abs(scrollY - ours) < 2) return;
      if (due && Date.now() - meant > 400) return; // the page changed
      ours = -1;
      following = active.size > 0 && inView();
      if (following) sessionStorage.removeItem(away);
      else if (active.size) sessionStorage.setItem(away, "1");
      showButton();
    },
    { passive: true },
  );
  for (const name of ["wheel", "touchmove", "keydown"]) {
    addEventListener(name, () => (meant = Date.now()), { passive: true });
  }
  addEventListener("resize", () => follow([]));
  new ResizeObserver(() => follow([])).observe(strip); // its words may need another line
  button.addEventListener("click", () => {
    following = true;
    sessionStorage.removeItem(away);
    part("step", current)?.focus({ preventScroll: true });
    reveal(true);
    showButton();
  });
  follow([cards]);
  showInDrawing([...document.querySelectorAll(".picture .box")].filter(isAtWork).slice(-1));
}
