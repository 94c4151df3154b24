// The form of the system prompt and the sampling settings of a conversation.
import { byId, make } from "../dom.js";
import { FIELDS, readField } from "./fields.js";

export class SettingsForm {
  // `onChange` is called with the changed parts of a conversation: {system} or {settings}.
  constructor(onChange) {
    this.onChange = onChange;
    this.settings = {};
    this.inputs = new Map();
    this.system = byId("system");
    this.thinking = byId("thinking");
    const place = byId("sampling");
    for (const field of FIELDS) place.append(this.makeField(field));
    this.system.addEventListener("input", () => onChange({ system: this.system.value }));
    this.thinking.addEventListener("change", () => this.change("thinking", this.thinking.checked || undefined));
    byId("reset-settings").addEventListener("click", () => {
      this.show({ system: this.system.value, settings: {} });
      onChange({ settings: {} });
    });
  }

  makeField(field) {
    const id = `setting-${field.name}`;
    const properties = { id, type: "text", autocomplete: "off", placeholder: field.unset };
    const input = make("input", { ...properties, inputMode: field.whole ? "numeric" : "decimal", "aria-describedby": `${id}-hint` });
    const hint = make("p", { id: `${id}-hint`, className: "hint", textContent: field.hint });
    input.addEventListener("input", () => this.read(field));
    this.inputs.set(field.name, { field, input, hint });
    const label = make("label", { for: id, textContent: field.label });
    return make("div", { className: "field" }, label, input, hint);
  }

  // A value that is not allowed is marked, and the last allowed one stays.
  read(field) {
    const { input, hint } = this.inputs.get(field.name);
    const { value, problem } = readField(field, input.value);
    input.setAttribute("aria-invalid", problem ? "true" : "false");
    hint.textContent = problem ?? field.hint;
    hint.classList.toggle("problem", Boolean(problem));
    if (!problem) this.change(field.name, value);
  }

  change(name, value) {
    this.settings = { ...this.settings, [name]: value };
    if (value === undefined) delete this.settings[name];
    this.onChange({ settings: this.settings });
  }

  show({ system, settings }) {
    this.settings = { ...settings };
    this.system.value = system;
    this.thinking.checked = settings.thinking === true;
    for (const { field, input, hint } of this.inputs.values()) {
      input.value = settings[field.name] ?? "";
      input.setAttribute("aria-invalid", "false");
      hint.textContent = field.hint;
      hint.classList.remove("problem");
    }
  }
}
