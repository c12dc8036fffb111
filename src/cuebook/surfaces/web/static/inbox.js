// The inbox says when something has come or gone; what somebody types is left alone.

const known = document.getElementById("inbox").dataset.waits;

setInterval(async () => {
  if (document.hidden) return;
  try {
    const response = await fetch("/api/inbox", { headers: { Accept: "application/json" } });
    if (!response.ok) return;
    const { waits } = await response.json();
    document.getElementById("news").hidden = waits.map((one) => one.wait).join(" ") === known;
  } catch {
    // the server is away; the next look will tell
  }
}, 4000);
