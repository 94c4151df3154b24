// The settings of an answer: their ranges, as the server has them, and the fields of a request. Pure.
const LARGEST = Number.MAX_SAFE_INTEGER; // the largest whole number that JSON keeps here

// An empty value leaves the choice to the server. `above` excludes the limit itself.
export const FIELDS = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, unset: "1", hint: "0 always takes the likeliest token" },
  { name: "top_p", label: "Top p", above: 0, max: 1, unset: "1", hint: "Only the likeliest tokens with this total probability" },
  { name: "top_k", label: "Top k", min: 1, max: 2 ** 31 - 1, whole: true, unset: "all", hint: "Only so many of the likeliest tokens" },
  { name: "min_p", label: "Min p", min: 0, max: 1, unset: "0", hint: "Only tokens with this share of the likeliest one's probability" },
  { name: "repetition_penalty", label: "Repetition penalty", above: 0, max: 1e6, unset: "1", hint: "Above 1, repeated tokens become less likely" },
  { name: "max_tokens", label: "Maximum length", min: 1, max: 2 ** 31 - 1, whole: true, unset: "as far as it fits", hint: "Tokens of an answer" },
  { name: "seed", label: "Seed", min: -LARGEST, max: LARGEST, whole: true, unset: "random", hint: "The same seed gives the same answer" },
];

// The number in a text, undefined for an empty one; or a sentence that says what is expected.
export function readField(field, text) {
  const trimmed = text.trim().replace(",", ".");
  if (trimmed === "") return { value: undefined };
  const value = Number(trimmed);
  const inRange = value <= field.max && (field.above === undefined ? value >= field.min : value > field.above);
  if (inRange && (!field.whole || Number.isInteger(value))) return { value };
  return { problem: `Expected ${field.whole ? "a whole number" : "a number"} ${range(field)}.` };
}

function range({ min, above, max }) {
  if (max === LARGEST) return `of at most ${String(max).length} digits`;
  const low = above === undefined ? `of at least ${min}` : `above ${above}`;
  return max > 1e5 ? low : `${low} and at most ${max}`;
}

// The part of a request that the settings make. Stored values that do not fit are left out.
export function requestFields(settings) {
  const fields = {};
  for (const field of FIELDS) {
    const value = settings[field.name];
    if (value === undefined || value === null) continue;
    const read = readField(field, String(value));
    if (read.value !== undefined) fields[field.name] = read.value;
  }
  if (settings.thinking === true) fields.chat_template_kwargs = { enable_thinking: true };
  return fields;
}
