// The only place where HTML from the server becomes elements.

const policy = globalThis.trustedTypes
  ? trustedTypes.createPolicy("cuebook", { createHTML: (html) => html })
  : { createHTML: (html) => html };

// The outermost parts in some HTML.
export function partsOf(html) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(html);
  return [...template.content.querySelectorAll("[data-part]")].filter(
    (one) => !one.parentElement?.closest("[data-part]"),
  );
}

// Some elements of another page.
export function piecesOf(html, selector) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(html);
  return [...template.content.querySelectorAll(selector)];
}

// Puts a part where it belongs: in place of the one with its id, or into the container it names.
export function place(part) {
  const there = document.getElementById(part.id);
  if (part.hasAttribute("data-gone")) {
    there?.remove();
    return;
  }
  if (there?.isEqualNode(part)) return; // a button that is being pressed stays the same one
  if (there) {
    const within = there.querySelector(":scope > .within"); // the sub-steps of a step have parts of their own
    if (within) part.querySelector(":scope > .within")?.replaceWith(within);
    const kept = stateOf(there);
    there.replaceWith(part);
    restore(part, kept);
  } else {
    const into = document.getElementById(part.dataset.into ?? "");
    if (!into) return;
    const after = part.dataset.after;
    const before = after === undefined ? null : document.getElementById(after);
    if (after === undefined) into.append(part);
    else if (before && before.parentElement === into) before.after(part);
    else into.prepend(part);
  }
  showTimes(part);
}

// The user's state (open details, checked boxes, typed text, focus), by element id.
function stateOf(part) {
  const within = (selector) => [...part.querySelectorAll(selector), ...(part.matches(selector) ? [part] : [])];
  return {
    open: new Map(within("details[id]").map((one) => [one.id, one.open])),
    checked: new Map(within("input[type=checkbox][id]").map((one) => [one.id, one.checked])),
    typed: new Map(
      within("input[id]:not([type=checkbox]), textarea[id], select[id]").map((one) => [one.id, one.value]),
    ),
    focus: part.contains(document.activeElement) ? document.activeElement : null,
  };
}

function restore(part, kept) {
  const find = (id) => (part.id === id ? part : part.querySelector(`[id="${CSS.escape(id)}"]`));
  for (const [id, open] of kept.open) {
    const one = find(id);
    if (one) one.open = open;
  }
  for (const [id, checked] of kept.checked) {
    const one = find(id);
    if (one) one.checked = checked;
  }
  for (const [id, value] of kept.typed) {
    const one = find(id);
    if (one) one.value = value;
  }
  if (!kept.focus) return;
  const again =
    (kept.focus.id && find(kept.focus.id)) || part.querySelector("[data-focus]") || part.closest("article") || document.getElementById("main");
  again.focus({ preventScroll: true });
}

// Times in the user's time zone.
const format = { month: "short", day: "numeric", hour: "numeric", minute: "2-digit" };
const clock = new Intl.DateTimeFormat(undefined, format);
const calendar = new Intl.DateTimeFormat(undefined, { year: "numeric", ...format });
const year = new Date().getFullYear();

export function showTimes(root) {
  for (const one of root.querySelectorAll("time[datetime]")) {
    const at = new Date(one.dateTime);
    if (!Number.isNaN(at.getTime())) {
      one.title = one.dateTime;
      one.textContent = (at.getFullYear() === year ? clock : calendar).format(at);
    }
  }
}
