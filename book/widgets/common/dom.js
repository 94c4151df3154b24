// Elements and controls that all widgets share.

// element("button", { type: "button", onclick }, "Next"): properties, then children.
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made && name !== "list") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// A slider over a list of values, with its label and the value beside it.
export function slider(label, values, value, onChange) {
  const shown = element("output", {}, String(value));
  const input = element("input", {
    type: "range",
    min: 0,
    max: values.length - 1,
    value: values.indexOf(value),
    oninput() {
      const chosen = values[Number(input.value)];
      shown.textContent = String(chosen);
      input.setAttribute("aria-valuetext", String(chosen));
      onChange(chosen);
    },
  });
  input.setAttribute("aria-valuetext", String(value));
  return element("label", { className: "control" }, element("span", {}, label), input, shown);
}

export function checkbox(label, checked, onChange) {
  const input = element("input", { type: "checkbox", checked, onchange: () => onChange(input.checked) });
  return element("label", { className: "control check" }, input, element("span", {}, label));
}

export function button(label, onclick) {
  return element("button", { type: "button", onclick }, label);
}

// A row with a label, a bar that fills this share of its track, and a text.
export function meter(label, share, text) {
  const filled = element("span", { className: "filled" });
  filled.style.width = `${100 * share}%`;
  return element(
    "div",
    { className: "meter" },
    element("span", {}, label),
    element("span", { className: "track" }, filled),
    element("span", { className: "amount" }, text),
  );
}

// Up to `digits` significant digits, with a real minus sign.
export function number(x, digits = 6) {
  if (x === null) return "–";
  if (!Number.isFinite(x)) return x < 0 ? "−∞" : "∞";
  return String(Number(x.toPrecision(digits))).replace("-", "−");
}
