// Short sentences at the edge of the page: what was deleted, what could not be kept.
import { byId, iconButton, make } from "./dom.js";

const SECONDS = 10;

// Show a sentence, with at most one action. One notice for each `key` at a time.
export function notify(sentence, { key = sentence, action = "", onAction = () => {}, stays = false } = {}) {
  const place = byId("notices");
  for (const old of place.children) if (old.dataset.key === key) old.remove();
  const notice = make("div", { className: "notice", "data-key": key }, make("span", { textContent: sentence }));
  if (action) {
    const button = make("button", { type: "button", className: "text-button", textContent: action });
    button.addEventListener("click", () => {
      notice.remove();
      onAction();
    });
    notice.append(button);
  }
  notice.append(iconButton("close", "Close this notice", () => notice.remove()));
  place.append(notice);
  if (!stays) setTimeout(() => notice.remove(), SECONDS * 1000);
}

// Say something to a screen reader only.
export function announce(sentence) {
  byId("status").textContent = sentence;
}
