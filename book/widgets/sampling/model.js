// From logits to a token, as src/tiny_llm/sampling does it: penalties, top-k, top-p, min-p, temperature, draw.

export const NEUTRAL = {
  repetition: 1,
  presence: 0,
  frequency: 0,
  topK: 0, // all tokens
  topP: 1,
  minP: 0,
  temperature: 1,
};
const CUMSUM_ERROR = 1e-6; // of a float32 sum; the sampler allows for it

// The logits after the penalties on the tokens of prompt and answer; presence and frequency see the answer alone.
export function penalised({ logits, prompt, answer }, { repetition, presence, frequency }) {
  const found = Float64Array.from(logits);
  for (const token of new Set([...prompt, ...answer]))
    found[token] = found[token] > 0 ? found[token] / repetition : found[token] * repetition;
  for (const token of new Set(answer)) {
    const times = answer.filter((each) => each === token).length;
    found[token] -= presence + frequency * times;
  }
  return found;
}

export function softmax(logits) {
  const largest = logits.reduce((a, b) => Math.max(a, b));
  const powers = Float64Array.from(logits, (x) => Math.exp(x - largest));
  const sum = powers.reduce((a, b) => a + b);
  return powers.map((x) => x / sum);
}

// Token ids from the most to the least probable; the lower id first among equals.
export function ranked(logits) {
  return Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b);
}

// Of each token the probability of being drawn, and which filter removed it ("" if none did).
export function distribution(example, parameters) {
  const { topK, topP, minP, temperature } = parameters;
  const logits = penalised(example, parameters);
  const whole = softmax(logits); // top-p and min-p compare probabilities of the whole vocabulary
  const order = ranked(logits);
  const best = order[0];
  const removedBy = new Array(logits.length).fill("");
  let before = 0; // the probability of the tokens before this one
  order.forEach((token, rank) => {
    if (topK && rank >= topK) removedBy[token] = "top-k";
    else if (topP > 0 && topP < 1 && rank > 0 && before >= topP - CUMSUM_ERROR) removedBy[token] = "top-p";
    else if (minP && whole[token] < minP * whole[best]) removedBy[token] = "min-p";
    else if (temperature === 0 && token !== best) removedBy[token] = "temperature";
    before += whole[token];
  });
  const scores = logits.map((x, token) => (removedBy[token] ? -Infinity : (x - logits[best]) / (temperature || 1)));
  // The sampler adds up probabilities in this order.
  const inOrder = topK || (topP > 0 && topP < 1) ? order : Array.from(logits.keys());
  return { probabilities: softmax(scores), removedBy, order: inOrder.filter((token) => !removedBy[token]) };
}

// The first token at which the sum of probabilities exceeds `uniform`, a number in [0, 1).
export function draw({ probabilities, order }, uniform) {
  let sum = 0;
  for (const token of order) {
    sum += probabilities[token];
    if (sum > uniform) return token;
  }
  return order.findLast((token) => probabilities[token] > 0);
}

export function entropy(probabilities) {
  return probabilities.reduce((bits, p) => (p > 0 ? bits - p * Math.log2(p) : bits), 0);
}

// Uniform numbers in [0, 1) that depend on the seed alone (mulberry32).
export function uniforms(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
