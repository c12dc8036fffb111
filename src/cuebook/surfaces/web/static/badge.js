// The inbox badge: the number of items waiting for the user.

export async function countWaits() {
  const link = document.querySelector('.top nav a[href="/inbox"]');
  if (!link || document.hidden) return;
  try {
    const response = await fetch("/api/inbox?limit=0", { headers: { Accept: "application/json" } });
    if (response.ok) show(link, (await response.json()).total);
  } catch {
    // the server cannot be reached; try again next time
  }
}

function show(link, count) {
  let badge = link.querySelector(".badge");
  if (!count) return badge?.remove();
  if (!badge) {
    badge = document.createElement("span");
    badge.className = "badge";
    link.append(badge);
  }
  badge.textContent = count;
  badge.setAttribute("aria-label", count === 1 ? "1 item waiting" : `${count} items waiting`);
}
