// The map of tiles: which are skipped, which need the mask, which are whole.

import { checkbox, element, slider, svg } from "#widgets/common/dom.js";
import { counts, tiles } from "#widgets/tile_map/model.js";

const SIDE = 360;
const LENGTHS = [64, 128, 256, 512, 1000, 1024, 2048];
const WINDOWS = ["none", 1, 64, 65, 128, 129, 256, 512, 1024];
const TILES = [32, 64, 128];

export function mount(place) {
  const call = { L: 1024, S: 1024, rows: 64, columns: 64, causal: true, window: 0 };
  const map = svg("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, role: "img", class: "map" });
  const sentence = element("p", { className: "sentence", ariaLive: "polite" });
  const set = (change) => {
    Object.assign(call, change);
    draw();
  };

  function draw() {
    const found = tiles(call);
    const { visited, boundary, skipped, total } = counts(found);
    const width = SIDE / found[0].length;
    const height = SIDE / found.length;
    const gap = Math.min(width, height) > 6 ? 1 : 0;
    map.replaceChildren(
      ...found.flatMap((line, i) =>
        line.map((kind, j) =>
          svg("rect", {
            x: j * width,
            y: i * height,
            width: width - gap,
            height: height - gap,
            class: `tile ${kind}`,
          }),
        ),
      ),
    );
    const text = `${total} tiles: ${visited} computed, ${boundary} of them with the mask; ${skipped} skipped.`;
    map.setAttribute("aria-label", text);
    sentence.textContent = text;
  }

  place.replaceChildren(
    element("figcaption", {}, "Tiles of the score matrix: queries from top to bottom, keys from left to right"),
    element(
      "div",
      { className: "controls" },
      slider("queries L", LENGTHS, call.L, (L) => set({ L })),
      slider("keys S", LENGTHS, call.S, (S) => set({ S })),
      slider("rows of a tile", TILES, call.rows, (rows) => set({ rows })),
      slider("keys of a tile", TILES, call.columns, (columns) => set({ columns })),
      slider("window", WINDOWS, "none", (window) => set({ window: window === "none" ? 0 : window })),
      checkbox("causal", call.causal, (causal) => set({ causal })),
    ),
    map,
    element(
      "p",
      { className: "legend" },
      ...[
        ["whole", "computed"],
        ["boundary", "computed, with the mask"],
        ["hidden", "skipped"],
      ].map(([kind, label]) => element("span", { className: `key-of ${kind}` }, label)),
    ),
    sentence,
  );
  place.classList.add("mounted");
  draw();
}
