// Steps of a model under three policies, and what they mean for the requests. All requests arrive at 0.
//
// A request is { name, prompt, output } in tokens. A step is { ms, rows, padding, idle }: a row is
// [request, tokens, 1 if it decodes], padding counts rows that are computed for nothing, and idle has the
// requests that have ended and keep their place. Recorded steps have neither.

// The line ms = base + perToken * rows that is nearest to the recorded steps (least squares).
export function fit(steps) {
  const points = steps.map(({ ms, rows }) => [rowsOf(rows), ms]);
  const mean = (index) => points.reduce((sum, point) => sum + point[index], 0) / points.length;
  const [x, y] = [mean(0), mean(1)];
  const covariance = points.reduce((sum, [rows, ms]) => sum + (rows - x) * (ms - y), 0);
  const perToken = covariance / points.reduce((sum, [rows]) => sum + (rows - x) ** 2, 0);
  return { base: y - perToken * x, perToken };
}

// Takes `places` requests, pads their prompts to the longest, and decodes until the last has ended.
export function staticSteps(requests, places, cost) {
  const steps = [];
  for (let first = 0; first < requests.length; first += places) {
    const batch = requests.slice(first, first + places).map((request, i) => [first + i, request]);
    const longest = Math.max(...batch.map(([, { prompt }]) => prompt));
    const last = Math.max(...batch.map(([, { output }]) => output));
    for (let token = 0; token < last; token++) {
      const rows = batch
        .filter(([, { output }]) => token < output)
        .map(([number, { prompt }]) => (token === 0 ? [number, prompt, 0] : [number, 1, 1]));
      const padding = batch.length * (token === 0 ? longest : 1) - rowsOf(rows);
      const idle = batch.filter(([, { output }]) => token >= output).map(([number]) => number);
      steps.push({ ...timed(rows, padding, cost), idle });
    }
  }
  return steps;
}

// Chooses anew in each step: a token of each running answer, then prompts in the order of arrival, in chunks
// that fill the budget. Infinity: whole prompts.
export function budgetSteps(requests, places, budget, cost) {
  const all = requests.map(({ prompt, output }, number) => ({ number, prompt, left: output }));
  const waiting = [...all];
  let running = [];
  const steps = [];
  while (running.length || waiting.length) {
    const rows = running.filter((each) => each.prompt === 0).map(({ number }) => [number, 1, 1]);
    let left = budget - rows.length;
    const fill = (each) => {
      const tokens = Math.min(each.prompt, left);
      rows.push([each.number, tokens, 0]);
      left -= tokens;
    };
    running.filter(({ prompt }) => prompt > 0 && left > 0).forEach(fill);
    while (left > 0 && waiting.length && running.length < places) {
      running.push(waiting.shift());
      fill(running.at(-1));
    }
    steps.push(timed(rows, 0, cost));
    for (const [number, tokens, decodes] of rows) {
      const each = all[number];
      if (!decodes) each.prompt -= tokens;
      if (each.prompt === 0) each.left--;
    }
    running = running.filter((each) => each.left > 0);
  }
  return steps;
}

// What a run of steps is for its requests; times in milliseconds from the arrival.
export function figures(requests, steps) {
  const left = requests.map(({ prompt }) => prompt);
  const times = requests.map(() => []); // of the tokens of each answer
  const gaps = [];
  let now = 0;
  for (const { ms, rows } of steps) {
    now += ms;
    for (const [number, tokens, decodes] of rows) {
      if (!decodes) left[number] -= tokens;
      if (left[number] > 0) continue;
      if (times[number].length) gaps.push(now - times[number].at(-1));
      times[number].push(now);
    }
  }
  const first = times.map((each) => each[0]);
  return {
    duration: now,
    output: times.map((each) => each.length),
    rate: (1000 * times.flat().length) / now,
    meanFirst: first.reduce((sum, each) => sum + each, 0) / first.length,
    lastFirst: Math.max(...first),
    largestGap: Math.max(0, ...gaps),
    padding: steps.reduce((sum, { padding = 0 }) => sum + padding, 0),
  };
}

// For each request its bars { from, to, kind }: prompt and decode, one for each step; waits and padding, joined.
export function bars(requests, steps) {
  const made = requests.map(() => []);
  const missing = requests.map(({ output }) => output);
  const left = requests.map(({ prompt }) => prompt);
  let now = 0;
  for (const { ms, rows, idle = [] } of steps) {
    const kinds = requests.map((_, number) => (missing[number] > 0 ? "waits" : idle.includes(number) ? "padding" : null));
    for (const [number, tokens, decodes] of rows) {
      kinds[number] = decodes ? "decode" : "prompt";
      if (!decodes) left[number] -= tokens;
      if (left[number] === 0) missing[number]--;
    }
    kinds.forEach((kind, number) => {
      const before = made[number].at(-1);
      const joined = kind === "waits" || kind === "padding";
      if (joined && before?.kind === kind && before.to === now) before.to = now + ms;
      else if (kind) made[number].push({ from: now, to: now + ms, kind });
    });
    now += ms;
  }
  return made;
}

export const rowsOf = (rows) => rows.reduce((sum, [, tokens]) => sum + tokens, 0);

// The number of the step that runs at this time.
export function stepAt(steps, ms) {
  let end = 0;
  const found = steps.findIndex((step) => (end += step.ms) > ms);
  return found < 0 ? null : found;
}

function timed(rows, padding, { base, perToken }) {
  return { ms: base + perToken * (rowsOf(rows) + padding), rows, padding };
}
