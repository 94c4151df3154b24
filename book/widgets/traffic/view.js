// The calculator of memory traffic: four sliders, three bars on a logarithmic scale.

import { element, slider } from "#widgets/common/dom.js";
import { bytes, traffic } from "#widgets/traffic/model.js";

const POWERS = Array.from({ length: 11 }, (_, i) => 64 * 2 ** i); // 64 to 65536
const LEAST = 1e4; // bytes at the left end of the axis, and at the right one
const MOST = 1e14;

export function mount(place) {
  const chosen = { tokens: 8192, heads: 32, size: 128, tile: 128 };
  const chart = element("div", { className: "bars", role: "img" });
  const sentence = element("p", { className: "sentence", ariaLive: "polite" });
  const change = (name) => (value) => {
    chosen[name] = value;
    draw();
  };

  function draw() {
    const result = traffic(chosen);
    chart.replaceChildren(
      bar("naive", result.naive, "naive"),
      bar("FlashAttention, K and V once per tile", result.reread, "reread"),
      bar("FlashAttention, perfect reuse", result.flash, "flash"),
    );
    chart.setAttribute(
      "aria-label",
      `naive ${bytes(result.naive)}, FlashAttention between ${bytes(result.flash)} and ${bytes(result.reread)}`,
    );
    sentence.textContent = describe(chosen, result);
  }

  place.replaceChildren(
    element("figcaption", {}, "Bytes that one layer moves between memory and chip (16 bit, forward, no mask; logarithmic bars)"),
    element(
      "div",
      { className: "controls" },
      slider("tokens T", POWERS, chosen.tokens, change("tokens")),
      slider("heads h", [1, 2, 4, 8, 14, 16, 28, 32, 64], chosen.heads, change("heads")),
      slider("head size d", [32, 64, 96, 128, 192, 256], chosen.size, change("size")),
      slider("rows of a query tile", [16, 32, 64, 128, 256], chosen.tile, change("tile")),
    ),
    chart,
    sentence,
  );
  place.classList.add("mounted");
  draw();
}

function bar(label, count, name) {
  const share = Math.log(count / LEAST) / Math.log(MOST / LEAST);
  const filled = element("span", { className: `bar ${name}` });
  filled.style.width = `${100 * Math.min(Math.max(share, 0.01), 1)}%`;
  return element(
    "div",
    { className: "bar-row" },
    element("span", {}, label),
    element("span", { className: "track" }, filled),
    element("span", {}, bytes(count)),
  );
}

function describe({ tokens, size, tile }, result) {
  const larger =
    tokens === size ? "equal to" : tokens > size ? "larger than" : "smaller than";
  return (
    `Naive attention moves ${result.ratio} times the bytes of perfect reuse (1 + T/d); its two matrices are ` +
    `${larger} Q, K, V and O together. Real kernels lie between the two other bars: caches hold many of the ` +
    `${Math.ceil(tokens / tile)} readings of K and V.`
  );
}
