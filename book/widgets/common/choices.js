// A row of buttons, one of which is pressed.

import { element } from "#widgets/common/dom.js";

// `names` maps a value to its text. Calls onChange(value) for another choice.
export function choices(label, names, chosen, onChange) {
  const buttons = Object.entries(names).map(([value, text]) =>
    element(
      "button",
      {
        type: "button",
        ariaPressed: String(value === chosen),
        onclick({ currentTarget }) {
          for (const each of buttons) each.ariaPressed = String(each === currentTarget);
          onChange(value);
        },
      },
      text,
    ),
  );
  const group = element("span", { className: "choices-buttons" }, ...buttons);
  return element("div", { className: "choices", role: "group", ariaLabel: label }, element("span", {}, label), group);
}
