// Continue a run with a changed text: show what becomes of each step, then ask for confirmation.

const form = document.getElementById("edit");
const problem = form.querySelector(".problem");
const confirm = form.querySelector("[data-confirm]");
const table = form.querySelector(".verdicts");
let plan = "";

async function send(body) {
  problem.hidden = true;
  const response = await fetch(form.dataset.api, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  const message = await response.json();
  if (response.ok) return [response.status, message];
  problem.textContent = message.detail;
  problem.hidden = false;
  return [response.status, null];
}

function show(steps) {
  const rows = steps.map((step) => {
    const row = document.createElement("tr");
    row.className = step.verdict;
    for (const text of [step.title && step.title !== step.step ? `${step.step} ${step.title}` : step.step, step.verdict, step.because]) {
      row.append(Object.assign(document.createElement("td"), { textContent: text }));
    }
    return row;
  });
  table.tBodies[0].replaceChildren(...rows);
  table.hidden = false;
}

function reset() {
  plan = "";
  confirm.hidden = true;
  table.hidden = true;
}

form.addEventListener("input", reset);
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  reset();
  const [, message] = await send({ text: form.elements.text.value });
  if (!message) return;
  plan = message.plan;
  show(message.steps);
  confirm.hidden = false;
  confirm.focus();
});
confirm.addEventListener("click", async () => {
  confirm.disabled = true;
  const [status, message] = await send({ text: form.elements.text.value, plan });
  confirm.disabled = false;
  if (status === 201) location.assign(`/runs/${message.run}`);
  else reset();
});
