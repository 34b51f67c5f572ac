// Before the page is drawn: the theme that the person chose, if any.
(() => {
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
    if (localStorage.getItem("rail") === "narrow") document.documentElement.dataset.rail = "narrow";
  } catch {
    // Storage is off: the system's theme is used.
  }
})();
