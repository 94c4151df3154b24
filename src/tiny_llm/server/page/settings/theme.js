// Light, dark, or as the system says. The style sheet follows the attribute data-theme of the page.
import { storageOf } from "../conversations/storage.js";
import { Store } from "../conversations/store.js";
import { byId } from "../dom.js";

const NAME = "tiny-llm.theme";
const THEMES = { system: "As the system", light: "Light", dark: "Dark" };
const kept = new Store(storageOf("localStorage"));

export function startTheme() {
  const button = byId("theme");
  let theme = kept.read(NAME);
  if (!(theme in THEMES)) theme = "system";
  const show = () => {
    document.documentElement.dataset.theme = theme;
    const label = `Colours: ${THEMES[theme].toLowerCase()}`;
    button.title = label;
    button.setAttribute("aria-label", label);
    button.querySelector("use").setAttribute("href", `#icon-${theme}`);
  };
  button.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    theme = names[(names.indexOf(theme) + 1) % names.length];
    kept.write(NAME, theme);
    show();
  });
  show();
}
