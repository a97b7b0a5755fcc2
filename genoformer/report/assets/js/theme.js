// Light and dark: as the system says, until the button is used; the choice is kept where the browser allows it.

const theme = {
  dark: window.matchMedia("(prefers-color-scheme: dark)"),
  listeners: [],

  isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : theme.dark.matches;
  },

  update() {
    byId("theme").textContent = theme.isDark() ? "Light" : "Dark";
    for (const listener of theme.listeners) listener();
  },

  toggle() {
    document.documentElement.dataset.theme = theme.isDark() ? "light" : "dark";
    try {
      localStorage.setItem("genoformer-theme", document.documentElement.dataset.theme);
    } catch {
      // a page opened from a file may have no storage
    }
    theme.update();
  },

  start() {
    try {
      const kept = localStorage.getItem("genoformer-theme");
      if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
    } catch {
      // as above
    }
    byId("theme").addEventListener("click", theme.toggle);
    theme.dark.addEventListener("change", theme.update);
    theme.update();
  },
};

/** Colors of the style by the names of their variables, for the canvas. */
function colorsOf(names) {
  const probe = make("i", "", { hidden: "" });
  document.body.append(probe);
  const colors = {};
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    colors[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return colors;
}
