// Grouped-query attention: which KV head a query head reads, and what the cache of keys and values takes.

export function divisors(n) {
  return Array.from({ length: n }, (_, i) => i + 1).filter((d) => n % d === 0);
}

// The KV head of query head h: neighbours share one. A frequent mistake deals them out in turn.
export function kvHead(h, { queryHeads, kvHeads }, mistaken = false) {
  return mistaken ? h % kvHeads : Math.floor(h / (queryHeads / kvHeads));
}

// The query heads that the mistaken map sends to the keys of another group.
export function foreign(call) {
  return Array.from({ length: call.queryHeads }, (_, h) => h).filter(
    (h) => kvHead(h, call, true) !== kvHead(h, call),
  );
}

// Bytes of a token in one layer: a key and a value for each KV head, 16 bits a number.
export function cacheBytes(kvHeads, size) {
  return 2 * kvHeads * size * 2;
}
