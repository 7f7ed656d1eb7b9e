// Light, dark, or as the system has it.

const THEMES = { "": ["dark", "◐ system"], dark: ["light", "● dark"], light: ["", "○ light"] };

function showTheme(theme) {
  const known = theme in THEMES ? theme : "";
  document.documentElement.dataset.theme = known;
  document.getElementById("theme").textContent = THEMES[known][1];
}

const nextTheme = () => THEMES[document.documentElement.dataset.theme ?? ""][0];
