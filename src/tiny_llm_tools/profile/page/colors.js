// Colours of the two themes. A ramp goes from 0, near the ground, to 1.
const RAMPS = {
  light: [[255, 255, 255], [214, 230, 244], [158, 202, 225], [74, 144, 201], [17, 93, 163], [5, 40, 95]],
  dark: [[24, 29, 36], [33, 52, 92], [74, 68, 140], [160, 79, 126], [233, 122, 78], [255, 224, 138]],
};

const theme = () => document.documentElement.dataset.theme;

function ramp(share) {
  const stops = RAMPS[theme()];
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const below = Math.min(Math.floor(place), stops.length - 2);
  return stops[below].map((low, i) => Math.round(low + (place - below) * (stops[below + 1][i] - low)));
}

const css = (color) => `rgb(${color.join(" ")})`;

const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function rgbOf(name) {
  const hex = variable(name);
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function paintRamps() {
  const stops = RAMPS[theme()].map(css).join(", ");
  for (const strip of document.querySelectorAll(".ramp")) strip.style.background = `linear-gradient(90deg, ${stops})`;
}

// The theme of the system, until the button is pressed.
const system = window.matchMedia("(prefers-color-scheme: dark)");
let pressed = false;

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  element("theme").textContent = dark ? "Light" : "Dark";
  element("theme").setAttribute("aria-label", dark ? "Use light colours" : "Use dark colours");
  paintRamps();
}

setTheme(system.matches);
system.addEventListener("change", () => {
  if (pressed) return;
  setTheme(system.matches);
  choose({});
});
element("theme").addEventListener("click", () => {
  pressed = true;
  setTheme(theme() !== "dark");
  choose({});
});
