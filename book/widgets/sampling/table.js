// The table of tokens: bars of the probabilities before and after the settings, and of the draws.

import { element } from "#widgets/common/dom.js";

const SCALES = [0.05, 0.1, 0.2, 0.3, 0.5, 1];

// `lines` have name, before, after, drawn, removedBy and seen; `others` is the sum of all further tokens.
export function tokenTable() {
  const scale = element("th", { scope: "col" });
  const body = element("tbody");
  const columns = ["before", "after", "drawn"].map((name) => element("th", { scope: "col" }, name));
  const head = element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "token"), scale, ...columns));

  function show(lines, others, total) {
    const share = (line) => (total ? line.drawn / total : 0);
    const largest = Math.max(...lines.flatMap((line) => [line.before, line.after, share(line)]));
    const end = SCALES.find((each) => largest <= each + 1e-9);
    scale.textContent = `0 to ${100 * end} %`;
    body.replaceChildren(
      ...lines.map((line) => row(line, bars(line, share(line), end), total)),
      row({ ...others, removedBy: "", seen: false }, [], total),
    );
  }

  return { table: element("table", { className: "tokens" }, head, body), show };
}

function bars(line, share, end) {
  const parts = { before: line.before, after: line.after, drawn: share };
  return Object.entries(parts).map(([kind, part]) => {
    const made = element("span", { className: `bar ${kind}` });
    made.style.width = `${Math.min(100, (100 * part) / end)}%`;
    return made;
  });
}

function row(line, drawing, total) {
  const label = drawing.length ? element("code", {}, line.name.replaceAll(" ", "␣")) : line.name;
  const seen = line.seen ? [element("abbr", { title: "already in prompt or answer" }, "•")] : [];
  return element(
    "tr",
    { className: line.removedBy ? "removed" : "" },
    element("th", { scope: "row" }, label, ...seen),
    element("td", { className: "bars", ariaHidden: "true" }, ...drawing),
    element("td", {}, percent(line.before)),
    element("td", {}, line.removedBy || percent(line.after)),
    element("td", {}, total ? String(line.drawn) : ""),
  );
}

function percent(share) {
  if (share < 0.0005) return share < 1e-12 ? "0 %" : "< 0.1 %";
  return `${(100 * share).toFixed(1)} %`;
}
