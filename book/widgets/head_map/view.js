// The map of heads: query heads above, KV heads below, a line for each reading; and the size of the cache.

import { checkbox, element, meter, slider, svg } from "#widgets/common/dom.js";
import { cacheBytes, divisors, foreign, kvHead } from "#widgets/head_map/model.js";

const QUERY_HEADS = [2, 4, 6, 8, 12, 14, 16, 28, 32];
const SIZES = [64, 80, 96, 128];
const HEIGHT = 170;
const TOP = 34; // centre of the query heads
const BOTTOM = 138;

export function mount(place) {
  const call = { queryHeads: 14, kvHeads: 2 };
  let [chosen, size, mistaken] = [3, 64, false];

  const map = svg("svg", { role: "img", height: HEIGHT, class: "heads" });
  const sentence = element("p", { className: "sentence", ariaLive: "polite" });
  const verdict = element("p", { className: "sentence verdict", ariaLive: "polite" });
  const crossed = element("span", { className: "key-of crossed" }, "reads the keys of another group");
  const sizes = element("div", { className: "caches" });
  const kvSlot = element("span", { className: "slot" });
  const headSlot = element("span", { className: "slot" });

  function set(change) {
    Object.assign(call, change);
    if ("queryHeads" in change) {
      const fits = divisors(call.queryHeads);
      call.kvHeads = fits.findLast((count) => count <= call.kvHeads);
      kvSlot.replaceChildren(slider("KV heads", fits, call.kvHeads, (kvHeads) => set({ kvHeads })));
    }
    choose(Math.min(chosen, call.queryHeads - 1));
  }

  function choose(head) {
    chosen = head;
    draw();
  }

  // The slider of the chosen head follows the pointer and the number of heads.
  function drawHeadSlider() {
    const input = headSlot.querySelector("input");
    if (Number(input?.max) === call.queryHeads - 1) {
      input.value = chosen;
      input.setAttribute("aria-valuetext", String(chosen));
      headSlot.querySelector("output").textContent = String(chosen);
    } else {
      const heads = Array.from({ length: call.queryHeads }, (_, h) => h);
      headSlot.replaceChildren(slider("query head h", heads, chosen, choose));
    }
  }

  function draw() {
    drawHeadSlider();
    const width = map.clientWidth || 640;
    map.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    map.replaceChildren(...shapes(call, chosen, mistaken, width));
    const text = describe(call, chosen, mistaken);
    map.setAttribute("aria-label", text);
    sentence.textContent = text;
    verdict.textContent = mistaken ? judge(call) : "";
    verdict.hidden = crossed.hidden = !mistaken;
    sizes.replaceChildren(...caches(call, size));
  }

  map.onpointermove = map.onpointerdown = (event) => {
    const box = map.getBoundingClientRect();
    const head = Math.floor(((event.clientX - box.left) / box.width) * call.queryHeads);
    if (event.clientY - box.top < HEIGHT / 2) choose(Math.min(Math.max(head, 0), call.queryHeads - 1));
  };

  place.replaceChildren(
    element("figcaption", {}, "Which KV head a query head reads"),
    element(
      "div",
      { className: "controls" },
      slider("query heads", QUERY_HEADS, call.queryHeads, (queryHeads) => set({ queryHeads })),
      kvSlot,
      headSlot,
      slider("head size", SIZES, size, (value) => {
        size = value;
        draw();
      }),
      checkbox("the wrong map, h mod H", mistaken, (value) => {
        mistaken = value;
        draw();
      }),
    ),
    map,
    element(
      "p",
      { className: "legend" },
      element("span", { className: "key-of query" }, "query head"),
      element("span", { className: "key-of loaded" }, "KV head"),
      crossed,
    ),
    sentence,
    verdict,
    element("p", { className: "counter" }, "Keys and values of one token in one layer, 16 bits a number:"),
    sizes,
  );
  set({ queryHeads: call.queryHeads });
  new ResizeObserver(draw).observe(place);
  place.classList.add("mounted");
}

function shapes(call, chosen, mistaken, width) {
  const { queryHeads, kvHeads } = call;
  const queryWidth = width / queryHeads;
  const kvWidth = width / kvHeads;
  const queryX = (h) => (h + 0.5) * queryWidth;
  const kvX = (n) => (n + 0.5) * kvWidth;
  const wrong = new Set(mistaken ? foreign(call) : []);
  const read = kvHead(chosen, call, mistaken);
  const lines = Array.from({ length: queryHeads }, (_, h) => {
    const names = ["reading", h === chosen && "chosen", wrong.has(h) && "foreign"].filter(Boolean);
    const to = kvX(kvHead(h, call, mistaken));
    return svg("line", { x1: queryX(h), y1: TOP, x2: to, y2: BOTTOM, class: names.join(" ") });
  });
  const heads = (count, at, pitch, y, kind, isChosen) =>
    Array.from({ length: count }, (_, n) => {
      const name = `head ${kind}${isChosen(n) ? " chosen" : ""}`;
      const side = Math.min(pitch - 2, 24);
      const box = svg("rect", { x: at(n) - side / 2, y: y - 12, width: side, height: 24, rx: 3, class: name });
      const every = Math.ceil(22 / pitch);
      const isNamed = isChosen(n) || (n % every === 0 && every === 1);
      const label = svg("text", { x: at(n), y: y + (kind === "query" ? -18 : 28), "text-anchor": n > 0 && n === count - 1 ? "end" : "middle" }, String(n));
      return isNamed ? [box, label] : [box];
    }).flat();
  return [
    ...lines.filter((_, h) => h !== chosen),
    lines[chosen],
    ...heads(queryHeads, queryX, queryWidth, TOP, "query", (h) => h === chosen),
    ...heads(kvHeads, kvX, kvWidth, BOTTOM, "kv", (n) => n === read),
  ];
}

function describe(call, chosen, mistaken) {
  const { queryHeads, kvHeads } = call;
  const group = queryHeads / kvHeads;
  const right = kvHead(chosen, call);
  const read = kvHead(chosen, call, mistaken);
  if (mistaken)
    return `Query head ${chosen} reads KV head ${chosen} mod ${kvHeads} = ${read}${read === right ? "" : `, but its keys are those of KV head ${right}`}.`;
  if (group === 1) return `Query head ${chosen} has KV head ${read} to itself.`;
  const first = right * group;
  return `Query head ${chosen} reads KV head ⌊${chosen} / ${group}⌋ = ${read}, like all heads from ${first} to ${first + group - 1}.`;
}

function judge(call) {
  const count = foreign(call).length;
  return count
    ? `${count} of ${call.queryHeads} query heads read the keys of another group. No shape is wrong, so nothing but the result shows it.`
    : "Here both maps are the same: with one KV head, or as many as query heads, no test finds the mistake.";
}

function caches({ queryHeads, kvHeads }, size) {
  const most = cacheBytes(queryHeads, size);
  const here = kvHeads === queryHeads ? "here: MHA" : kvHeads === 1 ? "here: MQA" : "here: GQA";
  return [
    [`MHA, H = ${queryHeads}`, queryHeads],
    [`${here}, H = ${kvHeads}`, kvHeads],
    ["MQA, H = 1", 1],
  ].map(([label, count]) => {
    const bytes = `${cacheBytes(count, size).toLocaleString("en")} B`;
    const share = cacheBytes(count, size) / most;
    return meter(label, share, count === queryHeads ? bytes : `${bytes}, 1/${queryHeads / count}`);
  });
}
