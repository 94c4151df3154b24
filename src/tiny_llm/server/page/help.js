// The keys, in a dialog. "?" opens it, and "/" goes to the question, where nothing is being written.
import { byId } from "./dom.js";

export function startHelp() {
  const dialog = byId("help");
  byId("show-help").addEventListener("click", () => dialog.showModal());
  byId("close-help").addEventListener("click", () => dialog.close());
  document.addEventListener("keydown", (event) => {
    const { key, target, ctrlKey, metaKey, altKey } = event;
    if (ctrlKey || metaKey || altKey || document.querySelector("dialog[open]")) return;
    if (target.matches("input:not([type=checkbox]), textarea, select")) return;
    if (key === "?") dialog.showModal();
    else if (key === "/") byId("question").focus();
    else return;
    event.preventDefault();
  });
}
