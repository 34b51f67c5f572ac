// Favourite topics: kept in this browser, shown above the list.
(() => {
  "use strict";
  const NAME = "favourite-topics";
  const load = () => { try { return new Set(JSON.parse(localStorage.getItem(NAME) ?? "[]")); } catch { return new Set(); } };
  const show = () => {
    const chosen = load();
    for (const star of document.querySelectorAll("[data-star]")) {
      const isOn = chosen.has(star.dataset.star);
      star.setAttribute("aria-pressed", String(isOn));
      star.textContent = isOn ? "★" : "☆";
    }
    const place = document.querySelector("[data-favourites]");
    if (!place) return;
    place.hidden = chosen.size === 0;
    place.replaceChildren(...[...chosen].sort().map((name) => {
      const link = document.createElement("a");
      link.href = `/topics/${encodeURIComponent(name)}`;
      link.textContent = `★ ${name}`;
      return link;
    }));
  };
  document.addEventListener("click", (event) => {
    const star = event.target.closest("[data-star]");
    if (!star) return;
    const chosen = load();
    if (!chosen.delete(star.dataset.star)) chosen.add(star.dataset.star);
    try { localStorage.setItem(NAME, JSON.stringify([...chosen])); } catch { /* storage is off */ }
    show();
  });
  document.addEventListener("htmx:load", show);
  show();
})();
