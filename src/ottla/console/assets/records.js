// The record viewer: rows that open in place, searches and live tails as event streams. Rows come escaped from the server.
(() => {
  "use strict";
  const ROWS_MAX = 1000;
  const stream = document.querySelector("[data-records]");
  const body = document.querySelector("#records tbody");

  // == a row opens in place
  const toggle = async (row) => {
    const next = row.nextElementSibling;
    if (next?.classList.contains("opened")) { next.remove(); row.classList.remove("open"); return; }
    const opened = document.createElement("tr");
    opened.className = "opened";
    const cell = opened.insertCell();
    cell.colSpan = row.cells.length;
    row.after(opened);
    row.classList.add("open");
    try {
      const response = await fetch(row.dataset.opens, { headers: { "HX-Request": "true" } });
      cell.innerHTML = await response.text();
    } catch {
      cell.textContent = "The console does not answer.";
    }
  };
  document.addEventListener("click", (event) => {
    const copied = event.target.closest("[data-copies]");
    if (copied) {
      const button = copied;
      button.dataset.copy = document.getElementById(button.dataset.copies)?.textContent ?? "";
      return;
    }
    const row = event.target.closest("tr[data-opens]");
    if (!row || event.metaKey || event.ctrlKey || event.shiftKey || event.target.closest("button, input")) return;
    if (String(getSelection())) return;
    event.preventDefault();
    toggle(row);
  }, true);

  // == the address holds only what differs from the defaults
  document.querySelector("[data-viewer]")?.addEventListener("submit", (event) => {
    const form = event.currentTarget;
    const usual = { decode: "auto", limit: "50" };
    const start = form.elements.from.value.trim();
    usual.order = start && !start.startsWith("-") ? "oldest" : "newest";
    for (const field of form.elements) if (field.name && (field.value === "" || field.value === usual[field.name])) field.disabled = true;
  });
  addEventListener("pageshow", () => {
    for (const field of document.querySelector("[data-viewer]")?.elements ?? []) field.disabled = false;
  });

  if (!stream?.dataset.stream) return;

  // == streams
  const words = stream.querySelector("[data-words]");
  const say = (text, isError) => { words.textContent = text; words.classList.toggle("error", Boolean(isError)); };
  const source = new EventSource(stream.dataset.stream);
  const read = (event) => JSON.parse(event.data);
  const end = () => { source.close(); stream.querySelector("[data-stop]")?.remove(); stream.querySelector("[data-pause]")?.remove(); };
  source.addEventListener("failed", (event) => { say(read(event).words, true); end(); });
  source.addEventListener("end", end);
  source.addEventListener("error", () => { if (source.readyState !== EventSource.CLOSED) { say("The console does not answer.", true); end(); } });
  addEventListener("pagehide", () => source.close());

  if (stream.dataset.kind === "search") {
    const bar = stream.querySelector("progress");
    let last = "Searching";
    source.addEventListener("rows", (event) => body.insertAdjacentHTML("beforeend", read(event).html));
    source.addEventListener("progress", (event) => {
      const found = read(event);
      last = found.words;
      say(found.error || (found.outcome ? `${found.outcome}: ${found.words}` : found.words), found.error);
      bar.max = Math.max(found.total, 1);
      bar.value = found.outcome === "complete" ? bar.max : found.done;
    });
    stream.querySelector("[data-stop]").addEventListener("click", () => { end(); say(`stopped: ${last}`); });
    return;
  }

  const pause = stream.querySelector("[data-pause]");
  const scroll = stream.querySelector(".scroll");
  let isPaused = false, missed = 0;
  const setPaused = (value) => {
    isPaused = value;
    pause.textContent = value ? "Continue" : "Pause";
    if (!value) missed = 0;
  };
  pause.addEventListener("click", () => { setPaused(!isPaused); if (!isPaused) scroll.scrollTop = 0; });
  scroll.addEventListener("scroll", () => { if (scroll.scrollTop > 40 && !isPaused) setPaused(true); });
  source.addEventListener("ready", () => say("Following: waiting for new records"));
  source.addEventListener("rows", (event) => {
    const found = read(event);
    if (isPaused) { missed += found.rows + found.left_out; say(`paused, ${missed} newer records, ${found.rate}`); return; }
    body.insertAdjacentHTML("afterbegin", found.html);
    while (body.rows.length > ROWS_MAX) body.rows[body.rows.length - 1].remove();
    say(`${found.rate}${found.left_out ? `, ${found.left_out} not shown` : ""}`);
  });
  // A rate that stays on the screen would be wrong when nothing arrives any more.
  let quiet = 0;
  source.addEventListener("rows", () => { clearTimeout(quiet); quiet = setTimeout(() => { if (!isPaused) say("0 records/s"); }, 2000); });
})();
