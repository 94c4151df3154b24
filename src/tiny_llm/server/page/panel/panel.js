// The live panel: reads /metrics while it is seen, and shows what the server is doing.
import { readMetrics } from "../chat/client.js";
import { sentenceOf } from "../chat/errors.js";
import { byId, make } from "../dom.js";
import { askForKey, authorization } from "../settings/key.js";
import { parseMetrics } from "./parse.js";
import { Reading, Readings } from "./rates.js";
import { Sparkline } from "./sparkline.js";

const SECONDS = 2; // between two readings

const whole = (value) => value.toLocaleString("en", { maximumFractionDigits: 0 });
const percent = (share) => `${(share * 100).toFixed(share < 0.1 && share > 0 ? 1 : 0)} %`;
const perSecond = (value) => (value > 0 && value < 10 ? value.toFixed(1) : whole(value));
const time = (seconds) => (seconds < 1 ? `${(seconds * 1000).toFixed(0)} ms` : `${seconds.toFixed(1)} s`);

// What a tile shows: its value in `shown` of rates.js, how it is written, and a second line.
const TILES = [
  { name: "running", label: "Requests running", write: whole, note: ({ waiting }) => `${whole(waiting)} waiting` },
  { name: "pages", label: "KV pages in use", write: percent, top: 1, note: ({ preempted }) => `${whole(preempted)} preemptions` },
  { name: "generated", label: "Tokens per second", write: perSecond, note: ({ prompt }) => `${prompt === null ? "–" : perSecond(prompt)} of prompts` },
  { name: "firstToken", label: "Time to first token", write: time, top: 0.001, note: slowest },
  { name: "cached", label: "Prompt found in the cache", write: percent, top: 1, note: () => "of the last 30 s" },
  { name: "finished", label: "Requests finished", write: whole, note: ({ failed }) => `${whole(failed)} failed` },
];

function slowest({ slowFirstToken }) {
  if (slowFirstToken === null) return "no request in the last 30 s";
  return slowFirstToken === Infinity ? "90 % within more than 2 min" : `90 % within ${time(slowFirstToken)}`;
}

export class LivePanel {
  constructor() {
    this.tiles = TILES.map((tile) => ({ ...tile, ...makeTile(tile) }));
    byId("tiles").append(...this.tiles.map(({ element }) => element));
    this.message = byId("live-message");
    this.keyButton = byId("live-key");
    this.keyButton.addEventListener("click", () => this.askForKey());
    this.open = false;
    this.timer = 0;
    this.abort = null;
    document.addEventListener("visibilitychange", () => this.follow());
  }

  show(open) {
    this.open = open;
    this.follow();
  }

  // Read while the panel and the page are seen, else not. Rates begin anew after a pause.
  follow() {
    clearTimeout(this.timer);
    this.abort?.abort();
    if (!this.open || document.hidden) return;
    this.readings = new Readings();
    this.abort = new AbortController();
    this.read(this.abort.signal);
  }

  async read(signal) {
    try {
      const samples = parseMetrics(await readMetrics(signal));
      if (signal.aborted) return;
      this.draw(this.readings.add(new Reading(samples, performance.now() / 1000)));
      this.say("");
    } catch (error) {
      if (signal.aborted) return;
      const needsKey = error.status === 401;
      this.say(needsKey ? "The numbers need the key of the server." : sentenceOf(error), needsKey);
      if (needsKey) return; // until the reader gives one
    }
    this.timer = setTimeout(() => this.read(signal), SECONDS * 1000);
  }

  say(sentence, needsKey = false) {
    this.message.textContent = sentence;
    this.message.hidden = !sentence;
    this.keyButton.hidden = !needsKey;
    byId("tiles").classList.toggle("stale", Boolean(sentence));
  }

  async askForKey() {
    if (await askForKey(authorization().authorization)) this.follow();
  }

  draw(shown) {
    for (const { name, write, note, value, second, line } of this.tiles) {
      const number = shown[name];
      value.textContent = number === null ? "–" : write(number);
      second.textContent = note(shown);
      line.add(number);
    }
  }
}

function makeTile({ name, label, top }) {
  const value = make("p", { className: "value", textContent: "–" });
  const second = make("p", { className: "note", textContent: "\u00a0" });
  const line = new Sparkline(top);
  const title = make("h3", { textContent: label });
  const element = make("section", { className: "tile", "data-tile": name }, title, value, second, line.element);
  return { value, second, line, element };
}
