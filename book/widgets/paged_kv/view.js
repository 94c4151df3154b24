// The pool as a grid of pages, and the requests with their page tables. A request lights up its pages.

import { button, element } from "#widgets/common/dom.js";
import * as model from "#widgets/paged_kv/model.js";

export function mount(place) {
  let pool = model.start();
  let lit = null; // the name of a request
  const requests = element("ul", { className: "requests" });
  const pages = element("ol", { className: "pages", start: 0 });
  const bars = element("div", { className: "pool-bars" });
  const sentence = element("p", { className: "sentence", ariaLive: "polite" });

  function act(change) {
    pool = change(pool);
    draw();
  }

  // The buttons of a request are made anew: the focus goes to the same one, or to the first control.
  function actOn(name, label, change) {
    const made = button(label, () => {
      act((before) => change(before, name));
      const again = requests.querySelector(`[data-request="${name}"] [data-action="${label}"]`);
      (again ?? first).focus();
    });
    made.dataset.action = label;
    made.setAttribute("aria-label", `${label}: request ${name}`);
    return made;
  }

  function light(name) {
    lit = name;
    const owned = pool.requests.find((each) => each.name === name)?.pages ?? [];
    [...pages.children].forEach((card, page) => card.classList.toggle("lit", owned.includes(page)));
  }

  // The other way round: the requests that own a page.
  function lightOwners(page) {
    const owners = pool.requests.filter((each) => each.pages.includes(page)).map(({ name }) => name);
    for (const row of requests.children) row.classList.toggle("lit", owners.includes(row.dataset.request));
  }

  function draw() {
    requests.replaceChildren(...pool.requests.map(row));
    if (pool.requests.length === 0) requests.append(element("li", { className: "nobody" }, "No request is running."));
    pages.replaceChildren(
      ...pool.owners.map((_, page) => {
        const made = card(pool, page);
        made.onmouseenter = () => lightOwners(page);
        made.onmouseleave = () => lightOwners(null);
        return made;
      }),
    );
    bars.replaceChildren(...usage(pool));
    sentence.textContent = pool.said;
    light(lit);
  }

  function row(request) {
    const cached = request.tokens.slice(0, request.cached).map(model.word).join(" ");
    const rest = request.tokens.slice(request.cached).map(model.word).join(" ");
    const made = element(
      "li",
      { onmouseenter: () => light(request.name), onmouseleave: () => light(null) },
      element("strong", {}, request.name),
      element("span", { className: "text" }, element("span", { className: "found" }, cached), ` ${rest}`),
      element("span", { className: "table" }, `pages ${request.pages.join(", ")}`),
      element(
        "span",
        { className: "actions" },
        actOn(request.name, "Append", model.append),
        actOn(request.name, "Fork", model.fork),
        actOn(request.name, "Finish", model.finish),
      ),
    );
    made.dataset.request = request.name;
    made.addEventListener("focusin", () => light(request.name)); // has no property
    made.addEventListener("focusout", () => light(null));
    return made;
  }

  const first = button("Add a question", () => act((before) => model.add(before, "question")));
  place.replaceChildren(
    element("figcaption", {}, `A pool of ${model.PAGES} pages of ${model.PAGE_SIZE} tokens, and the requests that own them`),
    element(
      "div",
      { className: "controls" },
      first,
      button("Add a story", () => act((before) => model.add(before, "story"))),
      button("Start again", () => act(model.start)),
    ),
    sentence,
    requests,
    pages,
    element(
      "p",
      { className: "legend" },
      ...[
        ["used", "one owner"],
        ["shared", "several owners"],
        ["kept", "kept: no owner, can be found"],
        ["blank", "blank"],
      ].map(([kind, label]) => element("span", { className: `key-of ${kind}` }, label)),
    ),
    element("p", { className: "counter" }, "# and four digits: the name of a full page, the hash of its tokens and of all before it."),
    bars,
  );
  place.classList.add("mounted");
  draw();
}

function card(pool, page) {
  const owners = pool.owners[page];
  const state = model.state(pool, page);
  const kind = state === "used" ? (owners > 1 ? "shared" : "used") : state;
  const facts = { used: `owners: ${owners}`, kept: "kept", blank: "blank" }[state];
  const name = pool.names[page];
  return element(
    "li",
    { className: `slots ${kind}` },
    element("span", { className: "head" }, element("b", {}, String(page)), element("span", {}, facts)),
    element("span", { className: "words" }, state === "blank" ? "" : pool.content[page].map(model.word).join(" ")),
    element("span", { className: "name" }, name ? `# ${name.slice(0, 4)}` : ""),
  );
}

function usage(pool) {
  const { tokens, paged, dense } = model.stored(pool);
  const longest = Math.max(model.PAGES * model.PAGE_SIZE, dense);
  return [
    ["tokens of all requests", tokens, "tokens"],
    ["slots of their pages", paged, "paged"],
    [`a dense cache: ${model.RESERVED} each, doubled when full`, dense, "dense"],
  ].map(([label, count, kind]) => {
    const bar = element("span", { className: `pool-bar ${kind}` });
    bar.style.width = `${(100 * count) / longest}%`;
    return element(
      "div",
      { className: "pool-bar-row" },
      element("span", {}, label),
      element("span", {}, bar),
      element("span", { className: "count" }, String(count)),
    );
  });
}
