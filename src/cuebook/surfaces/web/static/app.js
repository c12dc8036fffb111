// Used by every page: forms, times, copying, and filtering without a reload.

import { showTimes } from "./dom.js";
import { listen, signIn } from "./forms.js";
import { countWaits } from "./badge.js";

listen();
setInterval(countWaits, 20000);
document.addEventListener("visibilitychange", countWaits);
document.addEventListener("cuebook:done", countWaits);
showTimes(document);
for (const link of document.querySelectorAll("a[data-sign-in]")) link.href = signIn(link.dataset.signIn || "/sign-in"); // with the fragment
for (const field of document.querySelectorAll("input[data-sign-in]")) field.value += location.hash;
for (const picture of document.querySelectorAll(".picture:has(.box)")) showFirst(picture);

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const card = button.closest("article");
  const source = card.querySelector(":scope > .text > .raw") ?? card.querySelector(":scope > .text > .tail");
  const words = (await copied(source?.textContent ?? "")) ? "Copied" : "Not copied";
  const before = button.textContent;
  button.textContent = words;
  setTimeout(() => (button.textContent = before), 1500);
});

// A drawing wider than its container is scrolled to its first box.
function showFirst(picture) {
  const [box, place] = [picture.querySelector(".box"), picture].map((one) => one.getBoundingClientRect());
  picture.scrollLeft += box.x + box.width / 2 - place.x - place.width / 2;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

document.addEventListener("input", (event) => {
  const list = document.getElementById(event.target.dataset?.filter ?? "");
  if (!list) return;
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const one of list.children) {
    one.hidden = !words.every((word) => one.dataset.words.includes(word));
    shown += one.hidden ? 0 : 1;
  }
  document.getElementById(`${list.id}-none`).hidden = shown > 0;
});

document.addEventListener("change", (event) => {
  if (event.target.closest("form[data-submit-on-change]")) event.target.form.requestSubmit();
});

// Estimates are known for the listed models; any other model can be typed.
document.addEventListener("input", (event) => {
  if (!("estimate" in (event.target.dataset ?? {}))) return;
  const listed = [...event.target.list.options].find((one) => one.value === event.target.value);
  document.getElementById("estimate").textContent = listed?.dataset.cost ?? "unknown: this model is not listed";
});

document.addEventListener("click", (event) => {
  const chosen = event.target.closest?.("button[data-fill]");
  if (!chosen) return;
  const field = document.getElementById(chosen.dataset.fill);
  field.value = chosen.dataset.value;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  field.focus();
});
