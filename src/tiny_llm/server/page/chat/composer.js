// Where questions are written. Enter sends, Shift+Enter begins a line.
import { byId } from "../dom.js";

export class Composer {
  constructor({ onSend, onStop }) {
    this.area = byId("question");
    this.button = byId("send");
    this.onSend = onSend;
    this.onStop = onStop;
    this.running = false;
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.running) onStop();
      else this.send();
    });
    this.area.addEventListener("input", () => this.fit());
    this.area.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!this.running) this.send();
    });
  }

  send() {
    const text = this.area.value.trim();
    if (!text) return;
    this.area.value = "";
    this.fit();
    this.onSend(text);
  }

  // Add a part to the question.
  add(text) {
    this.area.value = `${[this.area.value.trimEnd(), text].filter(Boolean).join("\n\n")}\n\n`;
    this.fit();
    this.focus();
    this.area.scrollTop = this.area.scrollHeight;
  }

  setRunning(running) {
    this.running = running;
    const label = running ? "Stop (Esc)" : "Send (Enter)";
    this.button.title = label;
    this.button.setAttribute("aria-label", label);
    this.button.querySelector("use").setAttribute("href", running ? "#icon-stop" : "#icon-send");
    this.fit();
  }

  // As tall as its text, up to the height in the style sheet.
  fit() {
    this.area.style.height = "auto";
    this.area.style.height = `${this.area.scrollHeight}px`;
    this.button.disabled = !this.running && !this.area.value.trim();
  }

  focus() {
    this.area.focus({ preventScroll: true });
  }
}
