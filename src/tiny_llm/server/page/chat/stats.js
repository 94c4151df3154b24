// What is said below an answer: its length and speed, the cache, and how it ended. Pure.
const SHORTEST = 0.02; // seconds that say something about a rate
const ENDS = {
  length: "reached the maximum length",
  stopped: "stopped",
  interrupted: "interrupted when the page was left",
  tool_calls: "called a tool",
};

export function statsOf({ end, usage, times }) {
  const parts = [];
  if (usage) parts.push(`${usage.generated} ${usage.generated === 1 ? "token" : "tokens"}`);
  if (usage && times && usage.generated > 1) {
    // Tokens after the first, unless all came at once: then no shorter time was measured than the whole.
    const rate = times.rest > SHORTEST ? (usage.generated - 1) / times.rest : usage.generated / (times.first + times.rest);
    parts.push(`${rate < 10 ? rate.toFixed(1) : rate.toFixed(0)} tokens/s`);
  }
  if (times) parts.push(`first token after ${times.first < 1 ? `${(times.first * 1000).toFixed(0)} ms` : `${times.first.toFixed(1)} s`}`);
  if (usage?.prompt > 0) parts.push(`${((usage.cached / usage.prompt) * 100).toFixed(0)} % of the prompt from the cache`);
  if (ENDS[end]) parts.push(ENDS[end]);
  return parts;
}
