// Reloads the inbox when it changes; while the user is typing, it only shows a notice.

const inbox = document.getElementById("inbox");
const known = inbox.dataset.mark;

setInterval(async () => {
  if (document.hidden) return;
  try {
    const response = await fetch("/api/inbox?limit=0", { headers: { Accept: "application/json" } });
    if (!response.ok) return;
    const { mark } = await response.json();
    if (mark === known) return;
    if (isInUse()) document.getElementById("news").hidden = false;
    else location.reload();
  } catch {
    // the server cannot be reached; try again next time
  }
}, 2500);

function isInUse() {
  const fields = [...inbox.querySelectorAll("input, textarea, select")];
  const typed = (one) => (one.defaultValue !== undefined ? one.value !== one.defaultValue : false);
  const chosen = (one) => one.type === "radio" && one.checked !== one.defaultChecked;
  return fields.some((one) => one === document.activeElement || typed(one) || chosen(one));
}
