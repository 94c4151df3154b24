// The choice of the model, from the list of the server.
import { byId, make } from "../dom.js";

export class ModelChoice {
  constructor(onChange) {
    this.select = byId("model");
    this.models = [];
    this.select.addEventListener("change", () => onChange(this.select.value));
  }

  fill(models) {
    this.models = models;
    this.select.disabled = models.length < 2;
    const options = models.map(({ id, context }) => {
      const title = context ? `${id}, ${context} tokens of context` : id;
      return make("option", { value: id, textContent: id, title });
    });
    this.select.replaceChildren(...options);
  }

  // The tokens of context of a model, if the server has it.
  context(name) {
    return this.models.find(({ id }) => id === name)?.context;
  }

  // The model of a conversation; the first one if the server no longer has it.
  show(name) {
    if (this.models.length === 0) return name;
    const known = this.models.some(({ id }) => id === name);
    this.select.value = known ? name : this.models[0].id;
    this.select.title = this.select.selectedOptions[0].title;
    return this.select.value;
  }
}
