// A button that copies a text. Pages that come over plain HTTP from another machine have no navigator.clipboard.
import { announce } from "../notices.js";
import { make } from "../dom.js";

const SHOWN_SECONDS = 2;

export function copyButton(text, label) {
  const button = make("button", { type: "button", className: "text-button", textContent: "Copy", "aria-label": label });
  button.addEventListener("click", async () => {
    const done = await copy(text());
    button.textContent = done ? "Copied" : "Not copied";
    announce(button.textContent);
    setTimeout(() => (button.textContent = "Copy"), SHOWN_SECONDS * 1000);
  });
  return button;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelection(text);
  }
}

function copySelection(text) {
  const focused = document.activeElement;
  const area = make("textarea", { value: text, className: "off-screen", readOnly: true });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return done;
}
