// What the panel shows, from readings of /metrics one after another. Pure.
const PREFIX = "tiny_llm_";
const WINDOW_SECONDS = 30; // latencies are those of this time

// One reading: sums over all series of a name, with `time` in seconds.
export class Reading {
  constructor(samples, time) {
    this.time = time;
    this.samples = samples.filter(({ name }) => name.startsWith(PREFIX));
  }

  models() {
    return [...new Set(this.samples.map(({ labels }) => labels.model_name).filter(Boolean))];
  }

  sum(name, where = {}) {
    return this.series(name, where).reduce((total, { value }) => total + value, 0);
  }

  highest(name) {
    return this.series(name).reduce((highest, { value }) => Math.max(highest, value), 0);
  }

  series(name, where = {}) {
    const wanted = Object.entries(where);
    return this.samples.filter(
      (sample) => sample.name === PREFIX + name && wanted.every(([label, value]) => sample.labels[label] === value),
    );
  }
}

export class Readings {
  constructor() {
    this.all = [];
  }

  // Add a reading and get what it shows. Rates are null for the first, and after a restart of the server.
  add(reading) {
    const before = this.all.at(-1);
    if (before && reading.sum("generation_tokens_total") < before.sum("generation_tokens_total")) this.all = [];
    this.all.push(reading);
    const oldest = reading.time - WINDOW_SECONDS;
    while (this.all.length > 2 && this.all[1].time <= oldest) this.all.shift();
    return this.shown();
  }

  shown() {
    const now = this.all.at(-1);
    const queries = this.grown("prefix_cache_queries_total");
    return {
      running: now.sum("num_requests_running"),
      waiting: now.sum("num_requests_waiting"),
      pages: now.highest("kv_cache_usage_perc"),
      generated: this.rate("generation_tokens_total"),
      prompt: this.rate("prompt_tokens_total"),
      firstToken: this.mean("time_to_first_token_seconds"),
      slowFirstToken: this.quantile("time_to_first_token_seconds", 0.9),
      cached: queries > 0 ? this.grown("prefix_cache_hits_total") / queries : null,
      finished: now.sum("request_success_total"),
      failed: now.sum("request_success_total", { finished_reason: "error" }),
      preempted: now.sum("num_preemptions_total"),
    };
  }

  // How far a sum has grown within the window.
  grown(name, where) {
    return this.all.at(-1).sum(name, where) - this.all[0].sum(name, where);
  }

  // Per second, since the reading before.
  rate(name) {
    const [before, now] = this.all.slice(-2);
    if (!now || now.time <= before.time) return null;
    return (now.sum(name) - before.sum(name)) / (now.time - before.time);
  }

  // Mean of a histogram within the window, in its unit.
  mean(name) {
    const count = this.grown(`${name}_count`);
    return count > 0 ? this.grown(`${name}_sum`) / count : null;
  }

  // The limit below which this share of the values within the window was.
  quantile(name, share) {
    const count = this.grown(`${name}_count`);
    if (count <= 0) return null;
    const limits = [...new Set(this.all.at(-1).series(`${name}_bucket`).map(({ labels }) => labels.le))];
    limits.sort((a, b) => toNumber(a) - toNumber(b));
    const limit = limits.find((le) => this.grown(`${name}_bucket`, { le }) >= share * count);
    return limit === undefined ? null : toNumber(limit);
  }
}

const toNumber = (limit) => (limit === "+Inf" ? Infinity : Number(limit));
